"""The package with PyTorch: dtypes, process groups, memory. Skipped without it.

Environment: SAFESHUFFLE_LIBRARY, the library of the C interface; PYTHONPATH, the package.
"""

import resource
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    import torch.distributed as dist
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file, save, save_file
except ImportError as missing:
    print(missing)
    sys.exit(77)

import safeshuffle
from ranks import run_ranks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [
    dtype for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not dtype.is_complex and "q" not in str(dtype) and "bits" not in str(dtype)
]  # fmt: skip
SHAPES = [(), (1,), (4, 6), (3, 0, 2), (2, 3, 2, 2)]


def raw(tensor):
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and (a.numel() == 0 or torch.equal(raw(a), raw(b)))


def used_memory():
    if DEVICE == "cpu":
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def random_tensors():
    """Of every dtype that the reference library writes."""
    generator = torch.Generator().manual_seed(1)
    tensors = {"c64": torch.randn(3, 4, dtype=torch.complex64, generator=generator)}
    for dtype in DTYPES:
        for i, shape in enumerate(SHAPES):
            size = torch.Size(shape).numel() * dtype.itemsize
            data = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8, generator=generator)
            try:
                save({"x": data.view(dtype).view(shape)})
            except (KeyError, RuntimeError, ValueError, SafetensorError):
                continue
            tensors[f"{dtype}.{i}"] = data.view(dtype).view(shape)
    return tensors


class WithFile(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.path = Path(directory.name) / "model.safetensors"


class Tensors(WithFile):
    """On a GPU, if there is one."""

    def test_every_dtype_is_as_the_reference_has_it(self):
        tensors = random_tensors()
        self.assertGreater(len(tensors), 60)
        save_file(tensors, self.path)
        loaded = safeshuffle.load(self.path, device=DEVICE)
        for name, tensor in load_file(self.path).items():
            self.assertEqual(loaded[name].device.type, DEVICE)
            self.assertTrue(same(loaded[name], tensor), name)

    def test_slices(self):
        save_file({"w": torch.arange(60, dtype=torch.bfloat16).view(3, 4, 5)}, self.path)
        indices = [..., 0, slice(1, 3), (0, ..., 2), (slice(None), slice(1, 2)), (-1, -1, -1), []]
        with safeshuffle.safe_open(self.path, "pt", DEVICE) as ours, safe_open(self.path, "pt") as theirs:
            for index in indices:
                self.assertTrue(same(ours.get_slice("w")[index], theirs.get_slice("w")[index]), index)

    def test_conversion_and_own_memory(self):
        w = torch.randn(33, 17)
        save_file({"w": w}, self.path)
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            memory = torch.zeros(17, 40, dtype=dtype, device=DEVICE)
            with safeshuffle.open(self.path, device=DEVICE, dtype=dtype) as session:
                self.assertTrue(same(session.get_tensor("w"), w.to(dtype)))
                session.load_into({"w": memory[:, 3:36].t()})
            self.assertTrue(same(memory[:, 3:36].t().contiguous(), w.to(dtype)))
            self.assertEqual(memory[:, 36:].abs().sum(), 0)

    def test_pairs_of_f4_in_own_memory(self):
        if not hasattr(torch, "float4_e2m1fn_x2"):
            self.skipTest("PyTorch has none")
        pairs = torch.arange(12, dtype=torch.uint8).view(3, 4)
        save_file({"w": pairs.view(torch.float4_e2m1fn_x2)}, self.path)
        memory = torch.zeros(3, 6, dtype=torch.uint8, device=DEVICE)
        with safeshuffle.open(self.path, device=DEVICE) as session:
            session.load_into({"w": memory[:, :4].view(torch.float4_e2m1fn_x2)})
            self.assertTrue(same(memory[:, :4].cpu(), pairs))
            with self.assertRaisesRegex(ValueError, "not dense"):
                session.load_into({"w": memory.view(torch.float4_e2m1fn_x2)[:, ::2]})

    def test_memory_goes_with_the_last_tensor(self):
        save_file({f"w{i}": torch.zeros(1 << 20) for i in range(4)}, self.path)
        most = 0
        for _ in range(20):
            kept = safeshuffle.load(self.path, device=DEVICE)["w3"]
            most = most or used_memory() + (32 << 20)  # two loads more than after the first
        self.assertLess(used_memory(), most)
        self.assertEqual(kept.sum(), 0)


class Groups(WithFile):
    """On the host."""

    def test_process_groups(self):
        w = torch.arange(48, dtype=torch.float32).view(8, 6)
        save_file({"model.w": w, "b": torch.ones(3)}, self.path)
        for size in (2, 4):
            for rank, (half, whole, missing, plan) in enumerate(run_ranks(size, in_process_group, self.path)):
                self.assertEqual(half, w[8 // size * rank : 8 // size * (rank + 1)].tolist())
                self.assertEqual(plan, half)
                self.assertEqual(whole, w.tolist())
                self.assertEqual(missing, rank != size - 1)

    def test_permuted_sub_groups(self):
        w = torch.arange(48, dtype=torch.float32).view(8, 6)
        save_file({"w": w}, self.path)
        for (rank, mine), (part, refused) in run_ranks(4, in_sub_groups, self.path):
            self.assertEqual(part, w[4 * mine : 4 * mine + 4].tolist(), rank)
            self.assertTrue(refused)

    def test_a_lost_rank(self):
        save_file({"w": torch.zeros(4)}, self.path)
        self.assertEqual(run_ranks(2, left_alone, self.path), ["TimeoutError", None])


def join(group):
    store = dist.FileStore(
        f"{tempfile.gettempdir()}/{group.all_gather(tempfile.mktemp().encode(), 10)[0].decode()[5:]}", group.size
    )
    dist.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size)


def in_process_group(group, path):
    join(group)
    with safeshuffle.open(path, dist.group.WORLD) as session:
        half, whole = session.get_sharded("model.w", 0), session.get_tensor("model.w")
        pushed = session.push_tensor("b", group.size - 1)
    plan = safeshuffle.load(path, dist.group.WORLD, tp_plan={"w": "colwise"}, only="model.w")["model.w"]
    return half.tolist(), whole.tolist(), pushed is None, plan.tolist()


def in_sub_groups(group, path):
    join(group)
    groups = [
        dist.new_group(ranks, use_local_synchronization=True) for ranks in ([2, 0], [1, 3]) if group.rank in ranks
    ]
    other = dist.new_group([0, 1])
    mine = dist.get_rank(groups[0])
    part = safeshuffle.load(path, groups[0], tp_plan={"w": "colwise"})["w"]
    try:
        refused = group.rank < 2 or not safeshuffle.load(path, other)
    except ValueError:
        refused = True
    return (group.rank, mine), (part.tolist(), refused)


def left_alone(group, path):
    join(group)
    with safeshuffle.open(path, dist.group.WORLD, timeout=2) as session:
        if group.rank == 1:
            return None
        try:
            session.get_tensor("w")
        except safeshuffle.Error as error:
            return type(error).__name__


if __name__ == "__main__":
    unittest.main()
