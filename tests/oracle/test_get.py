"""`get` writes the bytes that the reference library slices from the files."""

import random
import tempfile
import unittest
from pathlib import Path

import numpy as np

import checkpoint
import command
import sample


def ranges(rng, shape):
    """One range per dimension, of some dimensions from the first on, as the command and numpy take them."""
    words, slices = [], []
    for extent in shape[: rng.randrange(len(shape) + 1)]:
        begin, end = sorted(rng.randrange(extent + 1) for _ in range(2))
        if rng.random() < 0.2 and begin < extent:
            words.append(str(begin))
            slices.append(slice(begin, begin + 1))
        else:
            words.append(rng.choice([f"{begin}:{end}", f"{begin}:", f":{end}", ":"]))
            first, last = words[-1].split(":")
            slices.append(slice(int(first or 0), int(last or extent)))
    return ",".join(words), tuple(slices)


class Get(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="safeshuffle-get-")
        cls.addClassCleanup(directory.cleanup)
        cls.work = Path(directory.name)
        cls.model = cls.work / "model"
        cls.model.mkdir()
        cls.tensors, _ = sample.write(cls.model)

    def get(self, name, output, *options):
        result = command.run("get", self.model, name, "--output", self.work / output, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.work / output

    def test_whole(self):
        """One of every dtype, as a file that any safetensors library reads."""
        of_dtype = {tensor.dtype: name for name, tensor in self.tensors.items()}
        for name in of_dtype.values():
            with self.subTest(name):
                got = checkpoint.read(self.get(name, "one.safetensors"))
                self.assertEqual(got, {name: self.tensors[name]})

    def test_slices(self):
        rng = random.Random(1)
        of_bytes = [name for name, t in self.tensors.items() if checkpoint.BITS[t.dtype] % 8 == 0]
        for name in rng.sample(sorted(of_bytes), 60):
            tensor = self.tensors[name]
            words, slices = ranges(rng, tensor.shape)
            with self.subTest(name, slice=words):
                element = checkpoint.BITS[tensor.dtype] // 8
                whole = np.frombuffer(tensor.data, dtype=f"V{element}").reshape(tensor.shape)
                options = ("--slice", words) if words else ()
                raw = self.get(name, "raw", *options).read_bytes()
                self.assertEqual(raw, whole[slices].tobytes())

    def test_what_cannot_be(self):
        # Longer ones are shortened in messages.
        name = next(name for name, tensor in self.tensors.items() if len(tensor.shape) == 1 and len(name) < 100)
        for words, says in (
            (("absent",), "no tensor 'absent'"),
            ((name, "--slice", "0:999999"), f"tensor '{name}': dimension 0 has"),
            ((name, "--slice", "0,0"), "1 dimension"),
            ((name, "--slice", "1:2:3"), "--slice"),
            ((name, "--slice", "-1"), "--slice"),
        ):
            with self.subTest(words):
                output = self.work / "none"
                result = command.run("get", self.model, *words, "--output", output)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(says, result.stderr)
                self.assertFalse(output.exists())


    def test_no_file_of_the_checkpoint_is_replaced(self):
        file = min(self.model.glob("*.safetensors"))
        before = file.read_bytes()
        result = command.run("get", self.model, next(iter(self.tensors)), "--output", file)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("is a file of the checkpoint", result.stderr)
        self.assertEqual(file.read_bytes(), before)


class Stream(unittest.TestCase):
    def test_is_verified_group_by_group(self):
        with tempfile.TemporaryDirectory(prefix="safeshuffle-get-") as work:
            model = Path(work) / "model"
            model.mkdir()
            sample.write(model)
            rules = sample.write_rules(Path(work))["rules"]
            for ranks in (1, 2, 3):
                with self.subTest(ranks=ranks):
                    result = command.run_ranks(ranks, "load", model, "--tp-plan", rules, "--order", "layer",
                                               "--stream", "2MiB", "--verify", "full", "--dtype", "f16")  # fmt: skip
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertRegex(result.stdout, r"streamed .* groups of at most 2 MiB, verified,")


if __name__ == "__main__":
    unittest.main()
