"""The Python package with NumPy, against the reference library.

Environment: SAFESHUFFLE_LIBRARY, the library of the C interface; PYTHONPATH, the package and tests/oracle; MPIEXEC, the
launcher with {ranks} where the number goes.
"""

import contextlib
import gc
import io
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from pathlib import Path

import numpy as np

import checkpoint
import models
import safeshuffle
from ranks import run_ranks

SHAPES = [(), (1,), (4, 6), (3, 0, 2), (2, 3, 2, 2)]
NUMPY_DTYPES = [dtype for dtype in checkpoint.BITS if dtype not in ("F4", "F6_E2M3", "F6_E3M2")]


def resident_bytes():
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def mapping_flags(address):
    """VmFlags, as of proc_pid_smaps(5)."""
    within = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii").splitlines():
        first = line.split()[0]
        if first == "VmFlags:" and within:
            return line.split()[1:]
        if "-" in first:
            begin, end = (int(number, 16) for number in first.split("-"))
            within = begin <= address < end
    raise AssertionError("no such mapping")


def llama(directory, layers=2, hidden=64):
    """A Llama of random weights, in two files; {name: array}."""
    rng = np.random.default_rng(1)
    arrays = {"model.embed_tokens.weight": rng.random((32, hidden), np.float32)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"):
            arrays[f"{prefix}{name}.weight"] = rng.random((hidden, hidden), np.float32)
        for name, shape in (("gate", (128, hidden)), ("up", (128, hidden)), ("down", (hidden, 128))):
            arrays[f"{prefix}mlp.{name}_proj.weight"] = rng.random(shape, np.float32)
        arrays[f"{prefix}input_layernorm.weight"] = rng.random(hidden, np.float32)
    names = list(arrays)
    files = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    tensors = {name: checkpoint.Tensor("F32", array.shape, array.tobytes()) for name, array in arrays.items()}
    for file, held in files.items():
        checkpoint.write_by_reference(directory / file, {name: tensors[name] for name in held})
    config = '{"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8}'
    checkpoint.write_index(directory, {f: {n: tensors[n] for n in held} for f, held in files.items()}, config)
    return arrays


class Package(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.directory = Path(directory.name)

    def write(self, tensors, name="model.safetensors"):
        checkpoint.write_by_reference(self.directory / name, tensors)
        return self.directory / name

    def write_arrays(self, **arrays):
        names = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16"}
        return self.write({k: checkpoint.Tensor(names[a.dtype], a.shape, a.tobytes()) for k, a in arrays.items()})


class Contents(Package):
    def test_every_dtype(self):
        rng = np.random.default_rng(17)
        path = self.write({
            f"{dtype}.{i}": checkpoint.random_tensor(rng, dtype, shape)
            for dtype in NUMPY_DTYPES for i, shape in enumerate(SHAPES)
        })  # fmt: skip
        tensors = safeshuffle.load(path, framework="np")
        expected = checkpoint.read(path)
        self.assertEqual(tensors.keys(), expected.keys())
        for name, tensor in expected.items():
            self.assertEqual((tensors[name].shape, tensors[name].tobytes()), (tensor.shape, tensor.data), name)

    def test_dtypes_that_numpy_lacks(self):
        tensors = {"packed": checkpoint.random_tensor(np.random.default_rng(1), "F4", (4, 6))}
        path = self.write(tensors)
        with self.assertRaisesRegex(safeshuffle.ConfigError, "'packed' is F4, which NumPy does not have"):
            safeshuffle.load(path, framework="np")
        tensor = safeshuffle.load(path, framework=None)["packed"]
        self.assertEqual((tensor.dtype, tensor.shape, tensor.nbytes), ("F4", (4, 6), 12))

    def test_dlpack_shares_memory_with_any_framework(self):
        path = self.write_arrays(w=np.arange(6, dtype=np.float32).reshape(2, 3))
        tensor = safeshuffle.load(path, framework=None)["w"]
        first, second = np.from_dlpack(tensor), tensor.numpy()
        self.assertEqual(first.ctypes.data, second.ctypes.data)
        second[0, 0] = 7
        self.assertEqual(first.tolist(), [[7, 1, 2], [3, 4, 5]])
        for request in ({"copy": True}, {"dl_device": (2, 0)}):
            with self.assertRaises(BufferError):
                tensor.__dlpack__(**request)

    def test_conversion(self):
        weights = np.array([1, 1e-3, 65504, 1e9], np.float32)
        loaded = safeshuffle.load(self.write_arrays(w=weights), framework="np", dtype=np.float16)
        with np.errstate(over="ignore"):
            self.assertEqual(loaded["w"].tolist(), weights.astype(np.float16).tolist())

    def test_what_is_stored(self):
        rng = np.random.default_rng(1)
        path = self.directory / "m.safetensors"
        tensors = {"b": checkpoint.random_tensor(rng, "BF16", (2, 3)), "a": checkpoint.random_tensor(rng, "U8", ())}
        checkpoint.write_by_reference(path, tensors, {"key": "värde"})
        with safeshuffle.safe_open(path, framework="np") as file:
            self.assertEqual(file.keys(), ["a", "b"])
            self.assertEqual(file.metadata(), {"format": "pt", "key": "värde"})
            self.assertEqual((file.get_dtype("b"), file.get_shape("b")), ("BF16", [2, 3]))
            self.assertIn("a", file)
            self.assertEqual(len(file), 2)
        for call in (lambda: file.get_tensor("a"), file.metadata, lambda: len(file), lambda: "a" in file):
            with self.assertRaisesRegex(ValueError, "closed"):
                call()


class OnDemand(Package):
    def test_slices(self):
        array = np.arange(2 * 5 * 7, dtype=np.float32).reshape(2, 5, 7)
        generator = random.Random(3)
        with safeshuffle.open(self.write_arrays(w=array), framework="np") as file:
            part = file.get_slice("w")
            self.assertEqual((part.get_shape(), part.get_dtype()), ([2, 5, 7], "F32"))
            for index in (
                ...,
                0,
                (0, ..., -1),
                slice(1, None),
                (slice(None), slice(0, 3)),
                (1, 4, 6),
                (..., slice(2, 2)),
            ):
                self.assertEqual(part[index].tolist(), array[index].tolist(), index)
            for _ in range(200):
                index = tuple(
                    slice(*sorted(generator.choices(range(-9, 10), k=2))) for _ in range(generator.randint(1, 3))
                )
                np.testing.assert_array_equal(part[index], array[index], str(index))
            with self.assertRaisesRegex(ValueError, "slices of step 2"):
                part[::2]
            with self.assertRaises(IndexError):
                part[2]
            with self.assertRaises(IndexError):
                part[0, 0, 0, 0]
            for index in ([0, 1], True, None):
                with self.assertRaises(TypeError):
                    part[index]
        with safeshuffle.open(self.write_arrays(w=array), framework=None) as file:
            self.assertEqual(file.get_slice("w")[1:].shape, (1, 5, 7))
            with self.assertRaisesRegex(ValueError, "index by slices"):
                file.get_slice("w")[0]

    def test_selected_tensors(self):
        path = self.write_arrays(**{f"layers.{i}.w": np.full(3, i, np.float32) for i in range(12)})
        loaded = safeshuffle.load(path, framework="np", only=["layers.1.*", "layers.2.*"], skip="*.2.w")
        self.assertEqual(list(loaded), ["layers.1.w"])
        self.assertEqual(loaded.report["tensor_bytes"], 12)

    def test_stream_is_in_order_and_bounded(self):
        arrays = {f"w{i}": np.full(1 << 18, i, np.float32) for i in range(40)}
        path = self.write_arrays(**arrays)
        with safeshuffle.open(path, framework="np", window=1 << 20) as file:
            before, most, names = resident_bytes(), 0, []
            for name, tensor in file.stream(group_bytes=2 << 20):
                self.assertEqual(tensor[0], arrays[name][0])
                most, names = max(most, resident_bytes() - before), [*names, name]
            self.assertEqual(names, file.offset_keys())
            self.assertLess(most, 24 << 20)
            with self.assertRaises(MemoryError):
                list(file.stream(group_bytes=2 << 20))
            self.assertEqual(
                [name for name, _ in file.stream(["w3", "w11"])],
                ["w11", "w3"] if names.index("w11") < names.index("w3") else ["w3", "w11"],
            )

    def test_names_are_no_patterns(self):
        path = self.write_arrays(
            **{"w[0]": np.zeros(1, np.float32), "w0": np.ones(1, np.float32), "w*": np.ones(1, np.float32)}
        )
        with safeshuffle.open(path, framework="np") as file:
            self.assertEqual([name for name, _ in file.stream(["w[0]"])], ["w[0]"])
            self.assertEqual([name for name, _ in file.stream(["w*"])], ["w*"])

    def test_many_names_are_looked_up(self):
        names = [f"layers.{i}.w" for i in range(20_000)]
        path = self.write_arrays(**{name: np.zeros(1, np.float32) for name in names})
        with safeshuffle.open(path, framework="np") as file:
            self.assertEqual(sum(1 for _ in file.stream(names[::2])), 10_000)

    def test_arguments_are_checked(self):
        path = self.write_arrays(w=np.zeros((2, 3), np.float32))
        with safeshuffle.open(path, framework="np") as file:
            for call in (
                lambda: file.get_sharded("w", 2**32), lambda: file.get_sharded("w", -1), lambda: file.push_tensor("w", None),
                lambda: list(file.stream(group_bytes=-1)), lambda: list(file.stream(alive=0)), lambda: file.get_tensor("w\0x"),
                lambda: safeshuffle.load(path, only=[]), lambda: safeshuffle.load(path, tp_plan=None),
                lambda: safeshuffle.load(path, framework=[]), lambda: safeshuffle.load(str(path) + "\0x"),
                lambda: safeshuffle.load(path, dtype=float), lambda: file.cancel(2**40),
            ):  # fmt: skip
                with self.assertRaises(ValueError):
                    call()
            self.assertEqual(safeshuffle.load(os.fsencode(path), only={"w"}, framework="np")["w"].shape, (2, 3))

    def test_names_with_zero_bytes_are_refused(self):
        path = self.write_arrays(**{"a\0b": np.zeros(1, np.float32), "a\0c": np.ones(1, np.float32)})
        with self.assertRaisesRegex(ValueError, "zero byte"):
            safeshuffle.open(path)


class OwnMemory(Package):
    def test_by_name(self):
        arrays = llama(self.directory)
        memory = {name: np.zeros_like(array) for name, array in arrays.items()}
        with safeshuffle.open(self.directory, framework="np") as file:
            report = file.load_into(memory)
            for name, array in arrays.items():
                np.testing.assert_array_equal(memory[name], array)
                memory[name][...] = 0
            file.load_into(memory)
            np.testing.assert_array_equal(memory["model.embed_tokens.weight"], arrays["model.embed_tokens.weight"])
        self.assertEqual(report["tensor_bytes"], sum(array.nbytes for array in arrays.values()))

    def test_views_and_conversion(self):
        w = np.arange(6, dtype=np.float32).reshape(2, 3)
        memory = np.full((3, 4), 9, np.float16)
        with safeshuffle.open(self.write_arrays(w=w), framework="np") as file:
            file.load_into({"w": memory[:, :2].T})
        self.assertEqual(memory.tolist(), [[0, 3, 9, 9], [1, 4, 9, 9], [2, 5, 9, 9]])

    @unittest.skipUnless(Path("/sys/kernel/mm/transparent_hugepage").exists(), "this kernel has no huge pages")
    def test_new_memory_gets_huge_pages(self):
        """Which make its first touch quick."""
        w = np.ones(1 << 20, np.float32)
        memory = mmap.mmap(-1, w.nbytes, flags=mmap.MAP_PRIVATE)
        filled = np.frombuffer(memory, np.float32)
        with safeshuffle.open(self.write_arrays(w=w), framework="np") as file:
            file.load_into({"w": filled})
        np.testing.assert_array_equal(filled, w)
        self.assertIn("hg", mapping_flags(filled.ctypes.data))

    def test_second_names(self):
        path = self.write_arrays(embed=np.ones((4, 2), np.float32))
        shared = np.zeros((4, 2), np.float32)
        with safeshuffle.open(path, framework="np") as file:
            file.load_into({"embed": shared, "head": shared})
            self.assertEqual(shared.sum(), 8)
            with self.assertRaisesRegex(ValueError, "'head'"):
                file.load_into({"embed": shared, "head": shared.copy()})

    def test_bindings(self):
        w = np.arange(12, dtype=np.float32).reshape(3, 4)
        column, corner = np.zeros(3, np.float32), np.zeros((2, 2), np.float32)
        with safeshuffle.open(self.write_arrays(w=w), framework="np") as file:
            report = file.load_bindings([
                safeshuffle.Binding("w", 1, [4], column, "column"),
                safeshuffle.Binding("w", 6, [4, 1], corner, "corner"),
            ])  # fmt: skip
            for strides in ([], [1, 1], [-1], [2**64]):
                with self.assertRaisesRegex(ValueError, "stride"):
                    file.load_bindings([safeshuffle.Binding("w", 0, strides, column, "column")])
            with self.assertRaisesRegex(safeshuffle.PlanError, "too far"):
                file.load_bindings([safeshuffle.Binding("w", 12, [4], column, "too far")])
            self.assertEqual(file.load_bindings([])["tensor_bytes"], 0)
        self.assertEqual((column.tolist(), corner.tolist()), ([1, 5, 9], [[6, 7], [10, 11]]))
        self.assertEqual(report["ranks"][0]["read_bytes"], 48)

    def test_what_cannot_be_filled(self):
        path = self.write_arrays(w=np.zeros((2, 3), np.float32))
        read_only = np.zeros((2, 3), np.float32)
        read_only.flags.writeable = False
        with safeshuffle.open(path, framework="np") as file:
            for memory, reason in (
                (read_only, "it is read-only"), (np.zeros((3, 2), np.float32), "shape"),
                (np.zeros((2, 3), np.float32)[::-1], "negative strides"), (np.zeros((2, 3), np.int32), "w"),
                (np.zeros((2, 3), object), "object"), (np.zeros((2, 3), ">f4"), "another order"),
                (np.zeros((2, 3), [("a", "<f4"), ("b", "i1")])["a"], "whole elements"), (np.float32(1), "'w' must be"),
            ):  # fmt: skip
                with self.assertRaisesRegex(ValueError, reason):
                    file.load_into({"w": memory})
            with self.assertRaisesRegex(ValueError, "state_dict"):
                file.load_into([np.zeros((2, 3), np.float32)])


class Failures(Package):
    def test_classes(self):
        with self.assertRaises(FileNotFoundError) as caught:
            safeshuffle.load(self.directory / "nowhere.safetensors")
        self.assertIsInstance(caught.exception, safeshuffle.IoError)
        self.assertEqual(caught.exception.file, str(self.directory / "nowhere.safetensors"))
        (self.directory / "bad.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0[]")
        with self.assertRaises(safeshuffle.FormatError) as caught:
            safeshuffle.load(self.directory / "bad.safetensors")
        self.assertEqual((caught.exception.offset, caught.exception.kind), (8, 4))
        path = self.write_arrays(w=np.zeros(1 << 20, np.float32))
        with self.assertRaises(MemoryError):
            safeshuffle.load(path, memory_budget=1 << 20)
        for arguments in ({"device": "tpu"}, {"dtype": "f8"}, {"framework": "tf"}, {"no_such": 1}, {"group": 3},
                          {"tp_plan": {"no": "rule"}}):  # fmt: skip
            with self.assertRaises(ValueError):
                safeshuffle.load(path, **arguments)

    def test_progress(self):
        path = self.write_arrays(w=np.zeros(1 << 20, np.float32))
        seen = []
        safeshuffle.load(path, framework="np", progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(seen[-1], (4 << 20, 4 << 20))

        with contextlib.redirect_stderr(io.StringIO()) as output:
            safeshuffle.load(path, framework="np", progress=True)
        self.assertRegex(output.getvalue(), r"100%.* 4.19M/4.19M ")

        def fail(_done, _total):
            raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            safeshuffle.load(path, framework="np", progress=fail)

    def test_ctrl_c_at_any_moment(self):
        path = self.write_arrays(**{f"w{i}": np.full(1 << 20, i, np.float32) for i in range(8)})
        memory = {f"w{i}": np.zeros(1 << 20, np.float32) for i in range(8)}
        generator = random.Random(1)
        with safeshuffle.open(path, framework="np", window=1 << 20, progress=lambda *_: None) as file:
            for call in (
                file.load,
                lambda: file.load_into(memory),
                lambda: sum(1 for _ in file.stream(group_bytes=8 << 20)),
            ):
                begin = time.monotonic()
                call()
                duration = time.monotonic() - begin
                for _ in range(20):
                    timer = threading.Timer(generator.random() * duration, os.kill, (os.getpid(), signal.SIGINT))
                    with self.assertRaises(KeyboardInterrupt):
                        timer.start()
                        call()
                        time.sleep(10)
                    timer.join()
            self.assertEqual(file.load()["w3"][0], 3)

    def test_threads_that_load_at_exit(self):
        path = self.write_arrays(w=np.zeros(1 << 20, np.float32))
        program = f"""if True:
            import safeshuffle, threading, time
            def load():
                while True:
                    safeshuffle.load({str(path)!r}, framework=None, window=1 << 16, progress=lambda *_: None)
            threading.Thread(target=load, daemon=True).start()
            time.sleep(0.3)
        """
        self.assertEqual(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode, 0
        )

    def test_cancel_from_threads(self):
        path = self.write_arrays(w=np.zeros(1 << 20, np.float32))
        for _ in range(30):
            file = safeshuffle.open(path, framework="np")
            threads = [threading.Thread(target=lambda: [file.cancel() for _ in range(50)]) for _ in range(3)]  # noqa: B023
            for thread in threads:
                thread.start()
            file.close()
            for thread in threads:
                thread.join()
        with safeshuffle.open(path, framework="np") as file:
            thread = threading.Thread(target=file.cancel)
            thread.start()
            thread.join()
            with self.assertRaises(safeshuffle.CancelledError):
                file.load()
            file.load()


class Lifetime(Package):
    def test_tensors_outlive_everything_in_any_order(self):
        arrays = {f"w{i}": np.full(1000, i, np.float32) for i in range(20)}
        path = self.write_arrays(**arrays)
        with safeshuffle.open(path, framework="np") as file:
            alone, loaded = file.get_tensor("w3"), file.load()
        names = list(arrays)
        random.Random(1).shuffle(names)
        while names:
            name = names.pop()
            kept = loaded.pop(name)
            gc.collect()
            self.assertEqual(kept[-1], arrays[name][0])
        del loaded, file
        self.assertEqual((kept[0], alone[0]), (arrays[name][0], 3))

    def test_many_loads_leave_nothing(self):
        path = self.write_arrays(w=np.zeros((64, 1024), np.float32))

        def once():
            with safeshuffle.open(path, framework=None) as file:
                file.get_slice("w")[:2].numpy()
                tensor = file.load()["w"]
                tensor.__dlpack__(max_version=(1, 0))
                np.from_dlpack(tensor)

        for _ in range(20):
            once()
        before, descriptors = resident_bytes(), len(os.listdir("/proc/self/fd"))
        for _ in range(1000):
            once()
        self.assertLess(resident_bytes() - before, 8 << 20)
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)

    def test_what_a_framework_refuses_is_freed(self):
        tensor = checkpoint.random_tensor(np.random.default_rng(4), "BF16", (1 << 20,))
        path = self.write({"w": tensor})
        before = resident_bytes()
        for _ in range(50):
            with self.assertRaises((BufferError, RuntimeError)):
                np.from_dlpack(safeshuffle.load(path, framework=None)["w"])
        self.assertLess(resident_bytes() - before, 32 << 20)

    def test_errors_keep_nothing_alive(self):
        path = self.write_arrays(w=np.zeros(100, np.float32), x=np.ones(100, np.float32))

        def fail(call):
            kept = np.zeros(1)
            gone.append(weakref.ref(kept))
            try:  # assertRaises would clear the frames
                call()
            except safeshuffle.Error:
                return
            self.fail("no error")

        gone = []
        gc.disable()
        try:
            with safeshuffle.open(path, framework="np") as file:
                fail(lambda: file.get_tensor("absent"))
                fail(lambda: file.get_slice("absent"))
                fail(lambda: file.load_into({"absent": np.zeros(1)}))
                for _name, _tensor in file.stream(group_bytes=512, alive=2):
                    fail(lambda: file.load())  # in the middle of the stream
                    break
                self.assertEqual(len(file.load()), 2)
            self.assertEqual([each() for each in gone], [None] * 4)
        finally:
            gc.enable()

    def test_a_stream_of_one_group_ends(self):
        with safeshuffle.open(self.write_arrays(w=np.ones(9, np.float32)), framework="np") as file:
            self.assertEqual(dict(file.stream(alive=1)).keys(), {"w"})

    def test_threads_take_turns(self):
        path = self.write_arrays(**{f"w{i}": np.full(100, i, np.float32) for i in range(8)})
        wrong = []
        with safeshuffle.open(path, framework="np") as file:

            def get(i):
                for _ in range(50):
                    if file.get_tensor(f"w{i}")[0] != i:
                        wrong.append(i)

            threads = [threading.Thread(target=get, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])

    def test_forked_processes_have_tensors_but_no_sessions(self):
        path = self.write_arrays(w=np.full(10, 5, np.float32))
        file = safeshuffle.open(path, framework="np")
        tensors = file.load()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                file.get_tensor("w")
            except RuntimeError:
                status = 0 if tensors["w"].sum() == 50 and safeshuffle.load(path, framework="np")["w"][0] == 5 else 2
            finally:
                file.close()
                del file
                gc.collect()
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(file.get_tensor("w")[0], 5)

    def test_forks_while_a_thread_loads(self):
        """Which has the lock of the session."""
        loading, forked = threading.Event(), threading.Event()
        path = self.write_arrays(w=np.zeros(10, np.float32))
        with safeshuffle.open(path, framework="np", progress=lambda *_: loading.set() or forked.wait()) as file:
            thread = threading.Thread(target=file.load)
            thread.start()
            loading.wait()
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                status = 1
                try:
                    file.load()
                except RuntimeError:
                    status = 0
                file.close()
                os._exit(status)
            status = os.waitpid(child, 0)[1]
            forked.set()
            thread.join()
        self.assertEqual(status, 0)

    def test_forks_after_a_thread_has_loaded_end_without_a_word(self):
        path = self.write_arrays(w=np.zeros(10, np.float32))
        program = f"""if True:
            import os, safeshuffle, sys, threading
            file = safeshuffle.open({str(path)!r}, framework=None)
            thread = threading.Thread(target=file.load)
            thread.start()
            thread.join()
            if os.fork():
                sys.exit(os.wait()[1])
        """
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        self.assertEqual(ended.stderr, "")


class Groups(Package):
    def test_by_rules_every_rank_reads_its_part(self):
        arrays = llama(self.directory)
        for size in (2, 4):
            results = run_ranks(size, load_parts, self.directory, method="spawn" if size == 2 else "fork")
            for rank, (parts, report) in enumerate(results):
                self.assertEqual(parts.keys(), arrays.keys())
                for name, part in parts.items():
                    np.testing.assert_array_equal(part, shard(name, arrays[name], rank, size), f"{name} {rank}")
                self.assertEqual(report["assignment"], "sliced")

    def test_memory_of_the_caller_gets_what_a_load_makes_of_every_model(self):
        """Quantised ones included, which rules cut, join and pad."""
        for model in models.recorded_models():
            size = next(size for size in (4, 2, 8) if size not in model.refused)
            with self.subTest(model.name), tempfile.TemporaryDirectory() as directory:
                models.write(Path(directory), model)
                self.assertEqual(run_ranks(size, fill_like_loaded, directory), [[]] * size)

    def test_on_demand(self):
        arrays = llama(self.directory)
        q, k = (f"model.layers.0.self_attn.{name}_proj.weight" for name in "qk")
        for rank, result in enumerate(run_ranks(2, get_parts, self.directory, q, k)):
            half = slice(32 * rank, 32 * rank + 32)
            np.testing.assert_array_equal(result["whole"], arrays[q])
            np.testing.assert_array_equal(result["sharded"], arrays[q][:, half])
            np.testing.assert_array_equal(result["columns"], np.concatenate([arrays[q][half], arrays[k][half]]))
            np.testing.assert_array_equal(result["pushed"], arrays[q]) if rank else self.assertIsNone(result["pushed"])
            np.testing.assert_array_equal(result["slice"], arrays[q][3:5])
            np.testing.assert_array_equal(result["bound"], arrays[q].reshape(-1)[rank : rank + 8])
            self.assertEqual(result["streamed"], sorted(arrays))

    @unittest.skipUnless(os.environ.get("MPIEXEC"), "without MPI")
    def test_communicators_of_mpi4py(self):
        """In the other order of ranks."""
        arrays = llama(self.directory)
        name = "model.layers.0.self_attn.q_proj.weight"
        program = """if True:
            import sys
            from mpi4py import MPI
            import numpy, safeshuffle
            group = MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank)
            tensors = safeshuffle.load(sys.argv[1], group, framework="np")
            numpy.save(f"{sys.argv[1]}/{group.rank}.npy", tensors[sys.argv[2]])"""
        launcher = os.environ["MPIEXEC"].replace("{ranks}", "2").split()
        subprocess.run([*launcher, sys.executable, "-c", program, self.directory, name], check=True, timeout=100)
        for rank in range(2):
            np.testing.assert_array_equal(np.load(self.directory / f"{rank}.npy"), shard(name, arrays[name], rank, 2))

    def run_with_mpi4py(self, program):
        """What two ranks write to files `result.*`."""
        launcher = os.environ["MPIEXEC"].replace("{ranks}", "2").split()
        command = [*launcher, sys.executable, "-c", program, self.directory]
        subprocess.run(command, capture_output=True, check=False, timeout=100)
        return [path.read_text() for path in sorted(self.directory.glob("result.*"))]

    @unittest.skipUnless(os.environ.get("MPIEXEC"), "without MPI")
    def test_duplicates_of_communicators_are_used_again(self):
        """Also if ranks end their groups in other orders."""
        llama(self.directory)
        program = """if True:
            import gc, sys
            from mpi4py import MPI
            import safeshuffle
            class Counting(MPI.Intracomm):
                duplicates = 0
                def Dup(self):
                    Counting.duplicates += 1
                    return super().Dup()
                def Idup(self):
                    Counting.duplicates += 1
                    return super().Idup()
            group = Counting(MPI.COMM_WORLD)
            def opened():
                gc.collect()
                return safeshuffle.open(sys.argv[1], group, framework="np", only="*norm*")
            for _ in range(5):
                files = [opened() for _ in range(3)]
                while files:
                    del files[-group.rank]
                    assert len(opened().load()) == 2
            open(f"{sys.argv[1]}/result.{group.rank}", "w").write(str(Counting.duplicates))"""
        self.assertEqual(self.run_with_mpi4py(program), ["4", "4"])

    @unittest.skipUnless(os.environ.get("MPIEXEC"), "without MPI")
    def test_a_rank_of_mpi4py_that_does_not_join(self):
        program = """if True:
            import os, sys
            from mpi4py import MPI
            import safeshuffle
            if MPI.COMM_WORLD.rank == 0:
                try:
                    safeshuffle.open(sys.argv[1], MPI.COMM_WORLD, timeout=0.5)
                except safeshuffle.TimeoutError as error:
                    open(f"{sys.argv[1]}/result.0", "w").write(type(error).__name__)
                MPI.COMM_WORLD.send(None, 1)
            else:
                MPI.COMM_WORLD.recv()
            os._exit(0)"""
        self.assertEqual(self.run_with_mpi4py(program), ["TimeoutError"])

    def test_nccl_of_a_package_is_found(self):
        library = self.directory / "nvidia/nccl/lib/libnccl.so.2"
        library.parent.mkdir(parents=True)
        shutil.copy(os.environ["SAFESHUFFLE_LIBRARY"], library)  # any library
        program = """if True:
            import safeshuffle
            class Two:
                rank, size = 0, 2
                def all_gather(self, data, timeout):
                    raise TimeoutError
            try:
                safeshuffle.Group(Two(), "cuda:0", timeout=1)
            except safeshuffle.Error:
                print("nvidia/nccl/lib" in open("/proc/self/maps").read())"""
        path = f"{self.directory}{os.pathsep}{os.environ['PYTHONPATH']}"
        found = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, text=True,
                               stdout=subprocess.PIPE, check=True)  # fmt: skip
        self.assertEqual(found.stdout, "True\n")

    def test_the_groups_failure_is_the_cause(self):
        llama(self.directory)
        for error, cause in run_ranks(2, fail_to_gather, self.directory):
            self.assertEqual((error, cause), ("TransportError", "LookupError('no network')"))

    def test_wrong_on_one_rank(self):
        llama(self.directory)
        for error in run_ranks(2, differ, self.directory):
            self.assertEqual(error, "ConfigError")
        self.assertEqual(run_ranks(2, lend_wrongly, self.directory), ["ConfigError", "ConfigError"])
        for errors in run_ranks(2, ask_wrongly, self.directory):
            self.assertEqual(len(errors), 14)

    def test_the_time_out_is_that_of_every_message(self):
        llama(self.directory)
        for rank in run_ranks(2, wait_in_vain, self.directory):
            for error in rank:
                self.assertEqual(error, ("TimeoutError", "TransportError", "TimeoutError('late')", 7.0))
            self.assertEqual(len(rank), 7)

    def test_ctrl_c_before_all_have_come(self):
        llama(self.directory)
        for call in range(3):
            self.assertEqual(run_ranks(2, interrupt, self.directory, call), ["KeyboardInterrupt", "CancelledError"])

    def test_ranks_in_different_calls(self):
        llama(self.directory)
        text = "rank 0 is in another collective call than this one"
        self.assertEqual(run_ranks(2, call_differently, self.directory)[1], f"TransportError {text}")


def fill_like_loaded(group, path):
    """Names of the tensors that are not the same."""
    with safeshuffle.open(path, group, tp_plan="auto", framework="np") as session:
        loaded = session.load()
        memory = {name: np.frombuffer(os.urandom(each.nbytes), each.dtype).reshape(each.shape).copy()
                  for name, each in loaded.items()}  # fmt: skip
        session.load_into(memory)
    return [name for name, each in loaded.items() if memory[name].tobytes() != each.tobytes()]


def shard(name, array, rank, size):
    """What Llama's rules give a rank."""
    if any(part in name for part in ("norm",)):
        return array
    axis = 1 if "o_proj" in name or "down_proj" in name else 0
    return np.split(array, size, axis)[rank]


def load_parts(group, path):
    tensors = safeshuffle.load(path, group, framework="np")
    return {name: np.array(tensor) for name, tensor in tensors.items()}, tensors.report


def get_parts(group, path, q, k):
    bound = np.zeros(8, np.float32)
    with safeshuffle.open(path, group, framework="np") as file:
        pushed = file.push_tensor(q, 1)
        result = {
            "whole": file.get_tensor(q), "sharded": file.get_sharded(q, 1), "columns": file.get_columns([q, k], 0),
            "pushed": pushed, "slice": file.get_slice(q)[3:5], "streamed": sorted(name for name, _ in file),
        }  # fmt: skip
        file.load_bindings([safeshuffle.Binding(q, file.rank, [1], bound)])
        return {**{name: np.array(v) if isinstance(v, np.ndarray) else v for name, v in result.items()}, "bound": bound}


def fail_to_gather(group, path):
    def fail(_data, _timeout):
        raise LookupError("no network")

    with safeshuffle.open(path, group, framework="np") as file:
        group.all_gather = fail
        try:
            file.load()
        except safeshuffle.Error as error:
            return type(error).__name__, repr(error.__cause__)


def wait_in_vain(group, path):
    """Of each call: its error, that of the next one, what the group raised, and how long it was told to wait."""

    def late(_data, timeout):
        waits.append(timeout)
        raise TimeoutError("late")

    def error_of(call):
        try:
            call(file)
        except safeshuffle.Error as error:
            return error

    name, waits, errors = "model.embed_tokens.weight", [], []
    for call in (
        lambda file: file.get_sharded(name, 0), lambda file: file.push_tensor(name, 0), lambda file: next(iter(file)),
        lambda file: file.get_slice(name)[0], lambda file: file.load_into({name: np.zeros((32, 64), np.float32)}),
        lambda file: file.load_bindings([]), lambda file: file.all_gather(b""),
    ):  # fmt: skip
        with safeshuffle.open(path, group, framework="np", timeout=7) as file:
            group.all_gather = late
            first, second = error_of(call), error_of(call)
        del group.all_gather
        errors.append((type(first).__name__, type(second).__name__, repr(first.__cause__), waits[-1]))
    return errors


def interrupt(group, path, call):
    """Rank 0, while it waits for the other one; afterwards, both can go on."""
    name = "model.embed_tokens.weight"
    with safeshuffle.open(path, group, framework="np") as file:
        gather, cancel, cancelled = group.all_gather, file.cancel, threading.Event()

        def interrupted_gather(data, timeout):
            if not cancelled.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                cancelled.wait(60)
            return gather(data, timeout)

        if group.rank == 0:
            file.cancel = lambda *code: (cancel(*code), cancelled.set())
            group.all_gather = interrupted_gather
        try:
            (
                lambda: file.get_slice(name)[0], lambda: file.get_sharded(name, 0),
                lambda: file.load_into({name: np.zeros((32, 64), np.float32)}),
            )[call]()  # fmt: skip
            ended = None
        except (safeshuffle.Error, KeyboardInterrupt) as error:
            ended = type(error).__name__
        file.load()
        return ended


def call_differently(group, path):
    name = "model.embed_tokens.weight"
    with safeshuffle.open(path, group, framework="np") as file:
        try:
            file.get_sharded(name, 0) if group.rank else file.get_tensor(name)
        except safeshuffle.Error as error:
            return f"{type(error).__name__} {error}"


def ask_wrongly(group, path):
    """On one rank only; afterwards, all can go on."""
    bad = group.rank == 1
    name = "model.embed_tokens.weight"
    errors = []
    wrong = {"dtype": "f17", "framework": "jax", "no_such": 1, "device": "tpu", "window": "wide", "path": None,
             "tp_plan": {"embed_tokens": "colwise"}}
    for option, value in wrong.items():
        arguments = {"path": path, "framework": "np", **({option: value} if bad else {})}
        try:
            safeshuffle.open(group=group, **arguments).close()
        except (safeshuffle.Error, TypeError) as error:
            errors.append(str(error))
    with safeshuffle.open(path, group, framework="np") as file:
        for call in (
            lambda: file.get_slice("absent" if bad else name)[0], lambda: file.get_slice(name)[999 if bad else 0],
            lambda: file.get_sharded(name, -1 if bad else 0), lambda: file.push_tensor(name, "x" if bad else 0),
            lambda: file.get_columns([3 if bad else name], 0), lambda: list(file.stream([] if bad else [name])),
            lambda: list(file.stream(alive=0 if bad else 1)),
        ):  # fmt: skip
            try:
                call()
            except safeshuffle.Error as error:
                errors.append(str(error))
            file.get_tensor(name)
    return errors


def differ(group, path):
    with safeshuffle.open(path, group, framework="np") as file:
        try:
            file.get_tensor(file.keys()[group.rank])
        except safeshuffle.Error as error:
            return type(error).__name__


def lend_wrongly(group, path):
    with safeshuffle.open(path, group, tp_plan="replicate", framework="np") as file:
        try:
            file.load_into({"model.embed_tokens.weight": "no array" if group.rank else np.zeros((32, 64), np.float32)})
        except safeshuffle.Error as error:
            return type(error).__name__


if __name__ == "__main__":
    unittest.main()
