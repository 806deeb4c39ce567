"""vllm_boxes.py WORLDS MODEL...: what vLLM's own weight loaders copy of each stored tensor. For scripts/check-models;
runs in a Python that has vLLM 0.32 for the CPU. Prints a line of JSON for each model: by number of ranks, by rank, by
name, the [offset, sizes, strides] of what is copied; or the error."""

import json
import os
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_CPU_KVCACHE_SPACE="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
os.environ.update(TORCHDYNAMO_DISABLE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", LOCAL_RANK="0")

import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402
from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.distributed import parallel_state  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.model_executor.kernels import linear as kernels  # noqa: E402
from vllm.model_executor.model_loader.utils import initialize_model  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32, "I64": torch.int64,
         "U8": torch.uint8, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn, "BOOL": torch.bool}  # fmt: skip


class Capture(TorchDispatchMode):
    """Notes every copy from a view of a stored tensor, which has no data, and everything else that is done to one."""

    def __init__(self):
        super().__init__()
        self.sources, self.boxes, self.computed = {}, {}, {}

    def source(self, name, shape, dtype):
        tensor = torch.empty(shape, dtype=dtype, device="meta")
        self.sources[tensor.untyped_storage()._cdata] = name, tensor
        return tensor

    def name_of(self, value, tensors):
        is_source = isinstance(value, torch.Tensor) and value.is_meta
        return tensors.get(value.untyped_storage()._cdata, (None,))[0] if is_source else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.copy_.default and self.name_of(args[1], self.computed):
            return args[0]
        if func is torch.ops.aten.copy_.default and self.name_of(args[1], self.sources):
            view = args[1]
            name = self.name_of(view, self.sources)
            self.boxes.setdefault(name, []).append([view.storage_offset(), list(view.shape), list(view.stride())])
            return args[0]
        result = func(*args, **(kwargs or {}))
        for value in tree_flatten(args)[0]:
            name = self.name_of(value, self.sources | self.computed)
            if name and isinstance(result, torch.Tensor) and self.name_of(result, self.sources) is None:
                self.computed[result.untyped_storage()._cdata] = name, result
        return result


def allow_kernels_of_gpus():
    """Layers can be constructed without the kernels that would compute with them."""
    for name in "init_fp8_linear_kernel", "init_nvfp4_linear_kernel":
        original = getattr(kernels, name)

        def or_none(*args, original=original, **kwargs):
            try:
                return original(*args, **kwargs)
            except ValueError:
                return MagicMock()

        for module in list(sys.modules.values()):
            if vars(module).get(name) is original:
                setattr(module, name, or_none)


def stored(directory, capture):
    for path in sorted(Path(directory).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                part = file.get_slice(name)
                yield name, capture.source(name, part.get_shape(), TYPES[part.get_dtype()])


def boxes_of(config, directory, world, rank):
    group = parallel_state.get_tp_group()
    group.world_size, group.rank_in_group = world, rank
    config.parallel_config.tensor_parallel_size, config.parallel_config.rank = world, rank
    config.compilation_config.static_forward_context.clear()
    with set_default_torch_dtype(config.model_config.dtype), torch.device("cpu"):
        model = initialize_model(config)
        if type(model).__name__.startswith("Transformers"):
            raise ValueError("vLLM has no model of its own")
        capture = Capture()
        with capture:
            model.load_weights(stored(directory, capture))
    computed = {name for name, _ in capture.computed.values()}
    return {name: views for name, views in capture.boxes.items() if name not in computed}


def check(directory, worlds):
    arguments = EngineArgs(model=directory, enforce_eager=True, max_model_len=64, skip_tokenizer_init=True, dtype="auto")
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        parallel_state.destroy_model_parallel()  # the groups depend on the model
        if not torch.distributed.is_initialized():
            parallel_state.init_distributed_environment(1, 0, f"file://{tempfile.mkdtemp()}/rendezvous", 0, "gloo")
        parallel_state.ensure_model_parallel_initialized(1, 1)
        return {world: [boxes_of(config, directory, world, rank) for rank in range(world)] for world in worlds}


def result(directory, worlds):
    try:
        return check(directory, worlds)
    except Exception as error:  # whatever vLLM does not know
        return {"error": (str(error).splitlines() or [repr(error)])[0]}


if __name__ == "__main__":
    allow_kernels_of_gpus()
    for model in sys.argv[2:]:
        print(json.dumps(result(model, [int(world) for world in sys.argv[1].split(",")])), flush=True)
