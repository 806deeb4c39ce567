"""The libraries that scripts/compare measures, and the settings it gives them: of those that their documentation
names, the ones for the case at hand. Imports none of them."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    driver: str  # the module in this directory
    packages: tuple  # that it needs; the first is the one it is about
    settings: str  # which, and where they are documented
    options: dict = dataclasses.field(default_factory=dict)  # arguments of the driver's load()
    environment: dict = dataclasses.field(default_factory=dict)  # variables, by the state of the page cache
    served: tuple = ()  # kinds of servers that it loads from (lib/measure/served.py)
    needs_gpu: bool = False
    needs_group: bool = False  # of torch.distributed
    prerelease: bool = False


PEERS = (
    Peer(
        "safetensors-mmap",
        "safetensors_slices",
        ("safetensors", "torch"),
        'safe_open(backend="mmap"), the default; each rank takes get_slice() of what it keeps and copies it to its own '
        "memory, converting on the way (docstrings of safe_open, get_slice)",
        options={"backend": "mmap"},
    ),
    Peer(
        "safetensors-pread",
        "safetensors_slices",
        ("safetensors", "torch"),
        'safe_open(backend="pread"); otherwise as safetensors-mmap (docstring of safe_open)',
        options={"backend": "pread"},
    ),
    Peer(
        "safetensors-prefetch",
        "safetensors_prefetch",
        ("safetensors", "torch"),
        "safe_open.prefetch(plan) of all files at once, threads=8, the default; the plan has slices of the first "
        "dimension, and whole tensors where another is cut (docstring of prefetch)",
        needs_gpu=True,
        prerelease=True,
    ),
    Peer(
        "fastsafetensors",
        "fastsafetensors_parallel",
        ("fastsafetensors", "torch"),
        "ParallelLoader over the process group, with its defaults for overlap and coalesced broadcasts; alone, "
        "borrowed tensors instead of clones; cold O_DIRECT, the default, cached FASTSAFETENSORS_ODIRECT=0; on GPUs "
        "GPUDirect Storage where it works (docs/overview.md, docstring of ParallelLoader)",
        environment={"warm": {"FASTSAFETENSORS_ODIRECT": "0"}},
        needs_group=True,
    ),
    Peer(
        "fastsafetensors-sharded",
        "fastsafetensors_sharded",
        ("fastsafetensors", "torch"),
        "SafeTensorsFileLoader with files dealt to the ranks; get_sharded() scatters what is cut into equal parts, "
        "get_tensor() broadcasts the rest; reading as with fastsafetensors (docs/overview.md)",
        environment={"warm": {"FASTSAFETENSORS_ODIRECT": "0"}},
        needs_group=True,
    ),
    Peer(
        "runai",
        "runai_streamer",
        ("runai-model-streamer", "runai-model-streamer-s3", "torch"),
        "SafetensorsStreamer.stream_files(is_distributed=True) of all files, RUNAI_STREAMER_DIST=1 (docs/src/usage.md)"
        "; cold with its default, direct reads by io_uring, cached with RUNAI_STREAMER_FS_STRATEGY=sync_buffered "
        "(comment of runai_file_streamer_set_fs_strategy)",
        options={"is_distributed": True},
        served=("s3",),
        environment={
            "cold": {"RUNAI_STREAMER_DIST": "1"},
            "warm": {"RUNAI_STREAMER_DIST": "1", "RUNAI_STREAMER_FS_STRATEGY": "sync_buffered"},
        },
        needs_group=True,
    ),
    Peer(
        "runai-each",
        "runai_streamer",
        ("runai-model-streamer", "runai-model-streamer-s3", "torch"),
        "SafetensorsStreamer.stream_files(is_distributed=False) of all files in each rank, which keeps its slices: "
        "what is_distributed=True comes to by default without NCCL; reading as with runai (docs/src/usage.md)",
        options={"is_distributed": False},
        served=("s3",),
        environment={"warm": {"RUNAI_STREAMER_FS_STRATEGY": "sync_buffered"}},
    ),
    Peer(
        "instanttensor",
        "instanttensor_ring",
        ("instanttensor", "torch"),
        "safe_open of all files over the NCCL group with copy=False; cold with its default, direct reads, cached with "
        "INSTANTTENSOR_BACKEND=BUFFERED (README: Distributed loading, Zero-copy mode, Buffered I/O)",
        environment={"warm": {"INSTANTTENSOR_BACKEND": "BUFFERED"}},
        needs_gpu=True,
        needs_group=True,
    ),
    Peer(
        "safeshuffle-python",
        "safeshuffle_load",
        ("torch",),
        "this project's Python package: safeshuffle.load(directory, group, device, dtype=...)",
        needs_group=True,
    ),
)
