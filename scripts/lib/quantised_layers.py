"""What quantisation methods store of a linear layer of out × in, for scripts/check-models: names, types, shapes."""

import torch

GROUP = BLOCK = 32
INT4 = 8  # values in a word
NVFP4_GROUP = 16

_ACTIVATIONS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}


def _compressed(form, weights, activations=None):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


CONFIGS = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True, "lm_head": False},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"},
    "packed": _compressed(
        "pack-quantized",
        {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP, "dynamic": False},
    ),
    "fp8-tensor": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8-channel": _compressed(
        "float-quantized",
        {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False},
        _ACTIVATIONS,
    ),
    "fp8-block": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK],
    },
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": NVFP4_GROUP, "exclude_modules": ["lm_head"]},
}  # fmt: skip


def stored(method, rows, columns):
    """Type and shape by the last part of the name."""
    half, single, word, fp8 = torch.float16, torch.float32, torch.int32, torch.float8_e4m3fn
    groups = columns // GROUP
    return {
        "gptq": {"qweight": (word, [columns // INT4, rows]), "qzeros": (word, [groups, rows // INT4]),
                 "scales": (half, [groups, rows]), "g_idx": (word, [columns])},
        "awq": {"qweight": (word, [columns, rows // INT4]), "qzeros": (word, [groups, rows // INT4]),
                "scales": (half, [groups, rows])},
        "packed": {"weight_packed": (word, [rows, columns // INT4]), "weight_scale": (half, [rows, groups]),
                   "weight_shape": (torch.int64, [2])},
        "fp8-tensor": {"weight": (fp8, [rows, columns]), "weight_scale": (single, []), "input_scale": (single, [])},
        "fp8-channel": {"weight": (fp8, [rows, columns]), "weight_scale": (single, [rows, 1])},
        "fp8-block": {"weight": (fp8, [rows, columns]), "weight_scale_inv": (single, [-(-rows // BLOCK), -(-columns // BLOCK)])},
        "nvfp4": {"weight": (torch.uint8, [rows, columns // 2]), "weight_scale": (fp8, [rows, columns // NVFP4_GROUP]),
                  "weight_scale_2": (single, []), "input_scale": (single, [])},
    }[method]  # fmt: skip


def _random(dtype, shape):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 256 if dtype == torch.uint8 else 2**31, shape).to(dtype)


def quantise(tensors, method):
    """The same checkpoint with the projections of its layers as `method` stores them, of random values."""
    result = {}
    for name, tensor in tensors.items():
        layer = name.removesuffix(".weight")
        if tensor.dim() != 2 or ".layers." not in name or not layer.endswith(("_proj", "_proj_with_mqa")):
            result[name] = tensor
            continue
        for last, (dtype, shape) in stored(method, *tensor.shape).items():
            result[f"{layer}.{last}"] = _random(dtype, shape)
    return result
