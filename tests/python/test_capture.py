"""safeshuffle.capture, with loaders as engines write them. Skipped without PyTorch.

Environment: SAFESHUFFLE_LIBRARY, the library of the C interface; PYTHONPATH, the package.
"""

import contextlib
import copy
import pickle
import sys
import tempfile
import threading
import unittest
import unittest.mock
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import torch
    from safetensors.torch import save_file
except ImportError as missing:
    print(missing)
    sys.exit(77)

import safeshuffle
import safeshuffle.capture
import safeshuffle.reload
from ranks import run_ranks


class Fused(torch.nn.Module):
    """q, k and v in one parameter, of which a rank has its heads; gate and up of each expert in another."""

    def __init__(self, rank=0, size=1, dtype=torch.float32):
        super().__init__()
        self.rank, self.size = rank, size
        self.qkv = torch.nn.Parameter(torch.zeros(3 * 16 // size, 8, dtype=dtype), requires_grad=False)
        self.experts = torch.nn.Parameter(torch.zeros(2, 2 * 4, 8, dtype=dtype), requires_grad=False)
        self.down = torch.nn.Parameter(torch.zeros(8, 16 // size, dtype=dtype), requires_grad=False)
        self.register_buffer("scale", torch.zeros((), dtype=dtype))
        self.register_buffer("ids", torch.zeros(4, dtype=torch.int64))

    def load_weights(self, weights):
        loaded = set()
        for name, tensor in weights:
            getattr(self, "load_" + name.split(".")[0])(name, tensor)
            loaded.add(name)
        return loaded

    def load_qkv(self, name, tensor):
        part = 16 // self.size
        at = "qkv".index(name[-1]) * part
        self.qkv.data.narrow(0, at, part).copy_(tensor.narrow(0, self.rank * part, part))

    def load_experts(self, name, tensor):
        _, expert, which = name.split(".")
        self.experts.data[int(expert)].chunk(2)[which == "up"].copy_(tensor.t())

    def load_down(self, _name, tensor):
        part = 16 // self.size
        self.down[:] = tensor[:, self.rank * part : (self.rank + 1) * part]

    def load_scale(self, _name, tensor):
        self.scale.fill_(tensor.item())

    def load_ids(self, _name, tensor):
        self.ids.copy_(tensor.to(torch.int64))


def stored():
    generator = torch.Generator().manual_seed(1)
    tensors = {f"qkv.{c}": torch.randn(16, 8, generator=generator) for c in "qkv"}
    tensors |= {f"experts.{i}.{w}": torch.randn(8, 4, generator=generator) for i in range(2) for w in ("gate", "up")}
    return {**tensors, "down": torch.randn(8, 16, generator=generator), "scale": torch.tensor(3.5),
            "ids": torch.arange(4, dtype=torch.int32)}  # fmt: skip


def check(group, path, dtype, size):
    rank = group.rank if group else 0
    model, expected = Fused(rank, size, dtype), Fused(rank, size, dtype)
    expected.load_weights(stored().items())
    expected = expected.state_dict()

    def wrong(filled):
        return [name for name, tensor in filled.state_dict().items() if not torch.equal(tensor, expected[name])]

    with safeshuffle.open(path, group) as session:
        captured = safeshuffle.capture.Captured(session, model, model.load_weights)
        report = captured.load(session)
        found = wrong(model)
        for tensor in model.state_dict().values():
            tensor.zero_()
        captured.load(session)
        found += wrong(model)
        parts = safeshuffle.reload.Parts(session, captured)
        found += [] if parts.fit(session) else ["fit"]
        other = Fused(rank, size, dtype)
        for group_bytes in (1, 600, 1 << 20):
            other.load_weights(parts.stream(session, "cpu", unwanted, group_bytes))
            found += wrong(other)
    return found, report, captured.loaded


def fail_on_last(group, path):
    model = Fused()

    def load(weights):
        for name, tensor in weights:
            if name == "ids" and not tensor.is_meta and group.rank == 1:
                raise KeyError(name)
            model.load_weights([(name, tensor)])

    with safeshuffle.open(path, group, timeout=20) as session:
        try:
            safeshuffle.capture.load(session, model, load)
        except safeshuffle.ConfigError as error:
            return str(error)


def take_on_first(group, path):
    model = Fused()
    with safeshuffle.open(path, group, timeout=20) as session:
        load = model.load_weights if group.rank == 0 else lambda _weights: None
        return safeshuffle.capture.load(session, model, load)["computed"]


def unwanted():
    raise AssertionError("a tensor would be read whole")


class Capture(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.path = Path(directory.name) / "model.safetensors"
        save_file(stored(), self.path)

    def test_parameters_are_what_the_loader_makes(self):
        for size in (1, 2, 4):
            for dtype in (torch.float32, torch.bfloat16):
                results = run_ranks(size, check, self.path, dtype, size)
                for wrong, report, loaded in results:
                    self.assertEqual(wrong, [])
                    self.assertEqual(report["computed"], ["ids", "scale"])
                    self.assertGreater(report["captured_share"], 0.9)
                    self.assertEqual(loaded, set(stored()))

    def test_a_rank_loads_again_what_it_took_and_reads_by_itself_what_it_takes_more(self):
        expected = stored()
        with safeshuffle.open(self.path) as session:
            model = Fused(1, 2)
            parts = safeshuffle.reload.Parts(session, safeshuffle.capture.Captured(session, model, model.load_weights))
            alone = unittest.mock.Mock(side_effect=lambda: safeshuffle.open(self.path))
            same = Fused(1, 2)
            same.load_weights(parts.stream(session, "cpu", alone))
            alone.assert_not_called()
            uses = {
                "another half": lambda tensor: tensor[:8].clone(),
                "a sum": lambda tensor: tensor.sum(0),
                "a comparison": lambda tensor: torch.ones(16, 8) < tensor,
                "data": lambda tensor: tensor.data + 0,
                "a parameter": lambda tensor: torch.nn.Parameter(tensor, requires_grad=False) + 0,
                "in place": lambda tensor: tensor.add_(1),
                "out": lambda tensor: torch.add(tensor, 1, out=torch.empty(16, 8)),
                "parts": lambda tensor: torch.cat(tensor.chunk(2)[::-1]),
                "a list": lambda tensor: torch.tensor(tensor.tolist()),
                "a number": lambda tensor: torch.tensor(tensor[3, 4].item()),
                "bits": lambda tensor: tensor.view(torch.int16)[2] + 0,
                "a copy": lambda tensor: copy.deepcopy(tensor) + 0,
                "pickled": lambda tensor: pickle.loads(pickle.dumps(tensor)),
                "an array": lambda tensor: torch.from_numpy(tensor.numpy() + 0),
                "its storage": lambda tensor: torch.tensor(list(tensor.untyped_storage())),
                "a view of a transposed view": lambda tensor: tensor.t()[2:4].contiguous(),
            }
            for use, take in uses.items():
                with self.subTest(use):
                    alone.reset_mock()
                    taken = {name: take(part) for name, part in parts.stream(session, "cpu", alone) if name == "qkv.q"}
                    self.assertTrue(torch.equal(torch.Tensor(taken["qkv.q"]), take(expected["qkv.q"].clone())))
                    alone.assert_called_once()

    def test_what_is_computed_with_is_loaded_whole(self):
        def add(model, _name, tensor):
            model.qkv.data[:16].add_(tensor)

        def cat(model, _name, tensor):
            model.qkv.data[:16].copy_(torch.cat([tensor[8:], tensor[:8]]))

        def replace(model, _name, tensor):
            model.qkv.data = tensor

        def stage(model, _name, tensor):
            staging = torch.empty(16, 8)
            staging.copy_(tensor)
            model.qkv.data[:16].copy_(staging)

        def overwrite(model, _name, tensor):
            tensor.zero_()
            model.qkv.data[:16].copy_(tensor)

        def transform(model, _name, tensor):
            model.qkv.data[:16].copy_(tensor)
            model.qkv.data.copy_(-model.qkv.exp())

        def negate(model, _name, tensor):
            model.qkv.data[:16].copy_(tensor)
            model.qkv.data[:16].neg_()

        def broadcast(model, _name, tensor):
            model.qkv.data[:16].copy_(tensor[:1])

        def fill_another(model, _name, tensor):
            model.qkv.data[:16].copy_(tensor)
            model.qkv.data[16:32].copy_(model.qkv.data[:16])

        def take_a_number(model, _name, tensor):
            model.qkv.data[:16].copy_(tensor)
            model.qkv.data[16:].fill_(model.qkv[0, 0].item())

        def take_a_list(model, _name, tensor):
            model.qkv.data[:16].copy_(tensor)
            model.qkv.data[16:].fill_(model.qkv[0].tolist()[1])

        def replace_data(model, _name, tensor):
            tensor.data = tensor.data * 2
            model.qkv.data[:16].copy_(tensor)

        def pickled(model, _name, tensor):
            model.qkv.data[:16].copy_(pickle.loads(pickle.dumps(tensor)))

        def keep(model, _name, tensor):
            model.kept = [*getattr(model, "kept", []), ("in a tuple", tensor[:8])]
            model.qkv.data[:8].copy_(tensor[8:])

        def count(model, _name, tensor):
            model.scale = model.scale + tensor.sum()
            model.qkv.data[:8].copy_(tensor[8:])

        def ask(model, _name, tensor):
            if tensor.abs().max() > 0:
                model.qkv.data[:16].copy_(tensor)

        for loader in (add, cat, replace, stage, overwrite, transform, negate, broadcast, fill_another, take_a_number,
                       take_a_list, replace_data, pickled, keep, count, ask):  # fmt: skip
            with self.subTest(loader.__name__), safeshuffle.open(self.path) as session:
                model, expected = Fused(), Fused()
                load = lambda of: lambda weights: [loader(of, *each) for each in weights] and None  # noqa: E731
                report = safeshuffle.capture.load(session, model, load(model), ["qkv.q"])
                load(expected)([("qkv.q", stored()["qkv.q"])])
                self.assertEqual(report["computed"], ["qkv.q"])
                self.assertTrue(torch.equal(model.qkv, expected.qkv))
                self.assertTrue(torch.equal(model.scale, expected.scale))
                kept = [[tensor for _, tensor in getattr(of, "kept", [])] for of in (model, expected)]
                self.assertTrue(all(map(torch.equal, *kept)))

    def test_order_is_kept(self):
        def computed_first(model, name, tensor, _seen):
            model.qkv.data[:16].copy_(tensor * 2) if name == "qkv.q" else model.qkv.data[:4].copy_(tensor[:4])

        def computed_last(model, name, tensor, _seen):
            model.qkv.data[:16].copy_(tensor) if name == "qkv.q" else model.qkv.data[:4].copy_(tensor[:4] * 2)

        def patched(model, name, tensor, _seen):
            model.qkv.data[:16].copy_(tensor) if name == "qkv.q" else model.qkv.data[3].copy_(tensor[5])

        def erased(model, name, tensor, _seen):
            model.qkv.data[:16].copy_(tensor) if name == "qkv.q" else model.qkv.data[:4].zero_()

        def erased_before(model, name, tensor, _seen):
            if name == "qkv.q":
                model.qkv.data.zero_()
                model.qkv.data[:16].copy_(tensor)
            else:
                model.qkv.data[16:32].copy_(tensor * 2)

        def by_name(model, name, tensor, seen):
            model.qkv.data[:16].copy_(tensor if name == "qkv.q" or "qkv.q" not in seen else -tensor)

        def wrong_shape_first(model, _name, tensor, _seen):
            try:
                model.down.data.copy_(tensor)
            except RuntimeError:
                model.down.data.copy_(tensor.t())

        for loader in (computed_first, computed_last, patched, erased, erased_before, by_name, wrong_shape_first):

            def load(model, weights, loader=loader):
                seen = set()
                for name, tensor in weights:
                    loader(model, name, tensor, seen)
                    seen.add(name)

            with self.subTest(loader.__name__), safeshuffle.open(self.path) as session:
                model, expected, names = Fused(), Fused(), ["qkv.q", "qkv.k"]
                captured = safeshuffle.capture.Captured(session, model, lambda weights: load(model, weights), names)  # noqa: B023
                load(expected, [(name, stored()[name]) for name in names])
                for _ in range(2):
                    captured.load(session)
                    for name, tensor in expected.state_dict().items():
                        self.assertTrue(torch.equal(model.state_dict()[name], tensor), name)
                again = Fused()
                load(again, safeshuffle.reload.Parts(session, captured).stream(session, "cpu", unwanted))
                for name, tensor in expected.state_dict().items():
                    self.assertTrue(torch.equal(again.state_dict()[name], tensor), name)

    def test_what_is_changed_in_place_is_changed_once(self):
        def load(model, weights):
            model.other.data.copy_(model.other * 3)
            for name, tensor in weights:
                if name == "qkv.q":
                    model.qkv.data[:16].copy_(tensor)
                elif name == "qkv.k":
                    model.qkv.data[:16].add_(tensor)  # only now is it known that qkv.q matters
                else:
                    model.other.data.mul_(2).add_(tensor)
            return True  # and not names

        models = [Fused(), Fused()]
        for model in models:
            model.other = torch.nn.Parameter(torch.ones(16, 8), requires_grad=False)
        names = ["qkv.q", "qkv.k", "qkv.v"]
        with safeshuffle.open(self.path) as session:
            report = safeshuffle.capture.load(session, models[0], lambda weights: load(models[0], weights), names)
        load(models[1], [(name, stored()[name]) for name in names])
        self.assertEqual(report["computed"], sorted(names))
        for filled, expected in zip(*(model.state_dict().values() for model in models)):
            self.assertTrue(torch.equal(filled, expected))

    def test_a_loader_may_copy_in_threads_of_its_own(self):
        def load(model, threads, weights):
            done = [threads.submit(copy_one, model, *each) for each in weights]
            for each in done:
                each.result()

        def copy_one(model, name, tensor):
            if name == "qkv.v":
                model.plain.add_(tensor)
            else:
                model.qkv.data.narrow(0, 16 * "qkv".index(name[-1]), 16).copy_(tensor)

        kept, names = ThreadPoolExecutor(2), ["qkv.q", "qkv.k", "qkv.v"]
        # Threads of an earlier load are not watched: all that they copy is loaded whole.
        for threads, computed in ((kept, ["qkv.v"]), (None, ["qkv.v"]), (kept, sorted(names))):
            models = Fused(), Fused()
            for model in models:
                model.plain = torch.ones(16, 8)

            def captured(weights, model=models[0], threads=threads):
                with contextlib.nullcontext(threads) if threads else ThreadPoolExecutor(2) as pool:
                    load(model, pool, weights)

            with self.subTest(threads=threads), safeshuffle.open(self.path) as session:
                report = safeshuffle.capture.load(session, models[0], captured, names)
                load(models[1], kept, [(name, stored()[name]) for name in names])
                self.assertEqual(report["computed"], computed)
                self.assertTrue(torch.equal(models[0].qkv, models[1].qkv))
                self.assertTrue(torch.equal(models[0].plain, models[1].plain))

    def test_threads_of_any_kind(self):
        class Own(threading.Thread):
            def __init__(self, copy):
                super().__init__()
                self.copy = copy

            def run(self):
                self.copy()

        def nested(copy):
            return threading.Thread(target=lambda: finish(Own(copy)))

        def finish(thread):
            thread.start()
            thread.join()

        start = threading.Thread.start
        for make in (Own, lambda copy: threading.Timer(0, copy), nested):
            model = Fused()

            def load(weights, model=model, make=make):
                for _, tensor in weights:
                    finish(make(lambda tensor=tensor: model.qkv.data[:16].copy_(tensor)))

            with safeshuffle.open(self.path) as session:
                self.assertEqual(safeshuffle.capture.load(session, model, load, ["qkv.q"])["computed"], [])
            self.assertTrue(torch.equal(model.qkv[:16], stored()["qkv.q"]))
            self.assertIs(threading.Thread.start, start)

    def test_what_stays_without_data_is_refused(self):
        kept, early = [], ThreadPoolExecutor(1)
        early.submit(int).result()

        def keep(_model, tensor):
            kept.append(tensor)

        def replace(model, tensor):  # in a thread that is not watched
            early.submit(lambda: setattr(model, "qkv", torch.nn.Parameter(tensor * 2))).result()

        for loader, message in ((keep, "keeps 'qkv.q' of an earlier call"), (replace, "without data")):
            model = Fused()
            load = lambda weights: [loader(model, tensor) for _, tensor in weights] and None  # noqa: B023, E731
            with self.subTest(message), safeshuffle.open(self.path) as session:
                with self.assertRaisesRegex(safeshuffle.ConfigError, message):
                    safeshuffle.capture.load(session, model, load, ["qkv.q"])

    def test_a_loader_that_takes_less_when_it_is_called_once_more_is_refused(self):
        model, done = Fused(), set()

        def load(weights):
            for name, tensor in weights:
                if name not in done:
                    model.qkv.data[:16].copy_(tensor * 2 if name == "qkv.q" else tensor)
                    done.add(name)

        with safeshuffle.open(self.path) as session, self.assertRaisesRegex(safeshuffle.ConfigError, "'qkv.k'"):
            safeshuffle.capture.load(session, model, load, ["qkv.k", "qkv.q"])

    def test_a_loader_that_fails_on_one_rank_ends_the_load_on_all(self):
        for result in run_ranks(2, fail_on_last, self.path):
            self.assertEqual(result, "the weight loader failed: KeyError('ids')")

    def test_a_rank_may_take_nothing(self):
        self.assertEqual(run_ranks(2, take_on_first, self.path), [["ids", "scale"]] * 2)

    def test_columns_beside_each_other_stay_captured(self):
        model = Fused()

        def load(weights):
            for name, tensor in weights:
                half = slice(4) if name == "qkv.q" else slice(4, None)
                model.qkv.data[:16, half].copy_(tensor[:, half])

        with safeshuffle.open(self.path) as session:
            report = safeshuffle.capture.load(session, model, load, ["qkv.q", "qkv.k"])
        self.assertEqual(report["computed"], [])
        self.assertTrue(torch.equal(model.qkv[:16], torch.cat([stored()["qkv.q"][:, :4], stored()["qkv.k"][:, 4:]], 1)))

    def test_what_no_box_can_say_is_computed(self):
        numbers = torch.tensor([1 + 2j, 3 - 4j, 5j])
        save_file({"z": numbers}, self.path)
        for make in (lambda z: z.conj(), lambda z: z.conj().clone(), lambda z: z.unfold(0, 2, 1)):
            expected = make(numbers)
            model = torch.nn.Module()
            model.register_buffer("z", torch.zeros_like(expected))
            with safeshuffle.open(self.path) as session:
                report = safeshuffle.capture.load(
                    session, model, lambda weights, make=make: [model.z.copy_(make(t)) for _, t in weights] and ["z"]
                )
            self.assertEqual((report["computed"], model.z.tolist()), (["z"], expected.tolist()))

    def test_copies_of_views_are_as_good_as_views(self):
        loaders = {
            "contiguous": lambda tensor: tensor.t().contiguous()[2:6].t(),
            "twice": lambda tensor: tensor.t().contiguous().t().clone()[:, 2:6],
            "moved": lambda tensor: tensor.to("cpu", copy=True)[:, 2:6],
            "reshaped": lambda tensor: tensor.t().reshape(8, 2, 8)[2:6].reshape(4, 16).t(),
            "steps": lambda tensor: tensor.clone()[:, ::2],
        }
        for name, view in loaders.items():
            model, expected = Fused(), Fused()
            load = lambda of: (
                lambda weights: [of.qkv.data[:16, :4].copy_(view(tensor)) for _, tensor in weights] and None
            )  # noqa: E731, B023
            with self.subTest(name), safeshuffle.open(self.path) as session:
                report = safeshuffle.capture.load(session, model, load(model), ["qkv.q"])
                load(expected)([("qkv.q", stored()["qkv.q"])])
                self.assertTrue(torch.equal(model.qkv, expected.qkv))
                self.assertEqual(report["computed"], [])

    def test_views_across_the_rows_of_a_copy(self):
        for stride in (1, 3, 5, 9):
            view = lambda tensor: tensor.t().contiguous().as_strided((4, 9), (stride, 5), 2)  # noqa: B023, E731
            model, expected = Fused(), Fused()
            load = lambda of: (
                lambda weights: [of.experts.data.view(-1)[:36].view(4, 9).copy_(view(t)) for _, t in weights] and None
            )  # noqa: E731, B023
            with safeshuffle.open(self.path) as session:
                safeshuffle.capture.load(session, model, load(model), ["qkv.q"])
            load(expected)([("qkv.q", stored()["qkv.q"])])
            self.assertTrue(torch.equal(model.experts, expected.experts), stride)

    def test_padding_beside_what_is_copied_stays_captured(self):
        def load(weights, model):
            for _, tensor in weights:
                model.qkv.data[:16].copy_(tensor)
                model.qkv.data[16:].fill_(7)
                model.qkv.data[48:].fill_(8)

        model = Fused()
        with safeshuffle.open(self.path) as session:
            report = safeshuffle.capture.load(session, model, lambda weights: load(weights, model), ["qkv.q"])
        self.assertEqual(report["computed"], [])
        self.assertTrue(torch.equal(model.qkv[:16], stored()["qkv.q"]))
        self.assertTrue((model.qkv[16:] == 7).all())

    def test_the_last_copy_to_a_place_counts(self):
        model = Fused()

        def load(weights):
            for _, tensor in weights:
                model.qkv.data[:16].copy_(tensor)

        with safeshuffle.open(self.path) as session:
            safeshuffle.capture.load(session, model, load, ["qkv.q", "qkv.v"])
        self.assertTrue(torch.equal(model.qkv[:16], stored()["qkv.v"]))

    def test_bits_of_another_dtype(self):
        model = Fused()
        model.bits = torch.nn.Parameter(torch.zeros(16, 8, dtype=torch.int32), requires_grad=False)

        def load(weights):
            for _, tensor in weights:
                model.bits.data.copy_(tensor.view(torch.int32))

        with safeshuffle.open(self.path) as session:
            report = safeshuffle.capture.load(session, model, load, ["qkv.q"])
        self.assertEqual(
            (report["computed"], model.bits.view(torch.float32).tolist()), ([], stored()["qkv.q"].tolist())
        )


if __name__ == "__main__":
    unittest.main()
