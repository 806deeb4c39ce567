"""Tiny models of random weights, in the names, files and quantised forms that people have.

usage: models.py DIRECTORY NAME...
"""

import glob
import json
import os
import shutil
import sys

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    CLIPImageProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

SMALL = dict(
    vocab_size=512,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=256,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    tie_word_embeddings=False,
)
LARGE = dict(
    vocab_size=32768,
    hidden_size=2048,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=64,
    intermediate_size=8192,
)  # 2.2 GB
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=64)
MLA = dict(
    q_lora_rank=32,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=32,
    v_head_dim=32,
    head_dim=64,
    num_key_value_heads=4,
)  # vLLM's CPU kernels know 512 + 64 only
DEEPSEEK = dict(
    MLA,
    **EXPERTS,
    n_routed_experts=4,
    n_shared_experts=1,
    n_group=2,
    topk_group=1,
    first_k_dense_replace=1,
    topk_method="noaux_tc",
    scoring_func="sigmoid",
)
VISION = dict(
    num_hidden_layers=2, hidden_size=64, num_attention_heads=2, intermediate_size=128, image_size=28, patch_size=14
)
MODELS = {  # name: (model_type, what differs from SMALL)
    "llama": ("llama", {}),
    "qwen3_moe": ("qwen3_moe", dict(EXPERTS, num_experts=4)),
    "gemma3": ("gemma3_text", dict(sliding_window=32, tie_word_embeddings=True)),
    "phi3": ("phi3", {}),
    "olmo2": ("olmo2", {}),
    "gpt_neox": ("gpt_neox", {}),
    "mixtral": ("mixtral", dict(num_local_experts=4)),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK),
    "gpt_oss": ("gpt_oss", dict(num_local_experts=4, num_experts_per_tok=2)),
    "llava": ("llava", {}),
    "mamba2": ("mamba2", dict(num_heads=8, expand=2, state_size=16, n_groups=2, chunk_size=16)),
    "gpt_oss_mxfp4": ("gpt_oss", dict(num_local_experts=4, num_experts_per_tok=2)),
    "llama_awq": ("llama", {}),
    "llama_gptq": ("llama", {}),
    "llama_fp8": ("llama", {}),
    "llama_fp8_channel": ("llama", {}),
    "llama_fp8_block": ("llama", dict(hidden_size=256, head_dim=128)),
    "llama_1b": ("llama", LARGE),
}
GROUP = 32


def packed(out_features, in_features, pack_dim, group=GROUP):
    """4-bit weights of random bits: qweight, qzeros, scales."""
    sizes = [in_features, out_features]
    sizes[pack_dim] //= 8
    bits = lambda *size: torch.randint(-(2**31), 2**31, size, dtype=torch.int32)
    return {
        "qweight": bits(*sizes),
        "qzeros": bits(in_features // group, out_features // 8),
        "scales": (torch.rand(in_features // group, out_features) * 0.02).half(),
    }


def awq(weight):
    return packed(*weight.shape, pack_dim=1)


def gptq(weight):
    return packed(*weight.shape, pack_dim=0) | {"g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP}


def fp8(weight, dims=None, block=None):
    """float8 weights with a scale for all, for each row, or for each block."""
    w = weight.float()
    if block:
        blocks = w.unflatten(1, (-1, block)).unflatten(0, (-1, block))
        scale = blocks.abs().amax((1, 3)) / 448
        w = w / scale.repeat_interleave(block, 0).repeat_interleave(block, 1)
        return {"weight": w.to(torch.float8_e4m3fn), "weight_scale_inv": scale}
    scale = w.abs().amax(dims, keepdim=dims is not None) / 448
    return {"weight": (w / scale).to(torch.float8_e4m3fn), "weight_scale": scale}


def mxfp4(weight):  # experts, in x out
    experts, inside, outside = weight.shape
    return {
        "_blocks": torch.randint(256, (experts, outside, inside // 32, 16)).to(torch.uint8),
        "_scales": torch.randint(120, 123, (experts, outside, inside // 32)).to(torch.uint8),
    }


CHANNEL = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "float",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}
QUANTISED = {  # name: (a layer's weight -> its stored tensors, quantization_config)
    "llama_awq": (awq, dict(quant_method="awq", bits=4, group_size=GROUP, zero_point=True, version="gemm")),
    "llama_gptq": (gptq, dict(quant_method="gptq", bits=4, group_size=GROUP, desc_act=False, sym=True, lm_head=False)),
    "gpt_oss_mxfp4": (
        mxfp4,
        dict(
            quant_method="mxfp4",
            modules_to_not_convert=[
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        ),
    ),
    "llama_fp8": (
        lambda w: fp8(w) | {"input_scale": torch.tensor(0.05)},
        dict(quant_method="fp8", activation_scheme="static"),
    ),
    "llama_fp8_channel": (lambda w: fp8(w, 1), CHANNEL),
    "llama_fp8_block": (
        lambda w: fp8(w, block=128),
        dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[128, 128]),
    ),
}


def build(name):
    kind, more = MODELS[name]
    sizes = {**SMALL, **more}
    torch.manual_seed(0)
    if kind == "llava":
        config = AutoConfig.for_model(
            kind,
            text_config=dict(sizes, model_type="llama"),
            image_token_index=500,
            vision_config=dict(VISION, model_type="clip_vision_model"),
        )
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes), dtype=torch.bfloat16)
    for tensor in [*model.parameters(), *(b for n, b in model.named_buffers() if n in model.state_dict())]:
        std = (
            0.001
            if sizes["tie_word_embeddings"] and len(tensor) == 512
            else tensor.shape[-1] ** -0.5
            if tensor.dim() > 1
            else 0.1
        )
        noise = std * torch.randn(tensor.shape)
        tensor.data.copy_(noise if tensor.dim() > 1 else tensor.data + noise)  # norms and biases matter, too
    return model


def save_processor(folder):
    """What vLLM asks of a vision-language model even if no image is ever given."""
    words = {f"<{i}>": i for i in range(500)} | {"<image>": 500}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, "<0>")), additional_special_tokens=["<image>"]
    )
    size = dict(height=28, width=28)
    images = CLIPImageProcessor(size=size, crop_size=size)
    LlavaProcessor(
        images, tokenizer, patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1
    ).save_pretrained(folder)


def rewrite(folder, change, shard_size):
    stored = {}
    for path in sorted(glob.glob(f"{folder}/*.safetensors*")):
        if path.endswith(".safetensors"):
            stored.update(load_file(path))
        os.remove(path)
    changed = [change(name, tensor) for name, tensor in stored.items()]
    save_torch_state_dict(
        {name: t for tensors in changed for name, t in tensors.items()}, folder, max_shard_size=shard_size
    )


def quantise(folder, layer, quantization_config, shard_size):
    def change(name, tensor):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return {name + part: t for part, t in layer(tensor).items()}
        if not name.endswith("_proj.weight") or layer is mxfp4:
            return {name: tensor}
        return {name.removesuffix("weight") + part: t for part, t in layer(tensor).items()}

    rewrite(folder, change, shard_size)
    with open(f"{folder}/config.json") as f:
        config = json.load(f)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config | {"quantization_config": quantization_config}, f, indent=1)


def make(folder, name):
    shutil.rmtree(folder, ignore_errors=True)
    model = build(name)
    shard_size = sum(t.nbytes for t in model.state_dict().values()) // 3
    model.save_pretrained(folder, max_shard_size=shard_size)
    if name == "llava":
        save_processor(folder)
        old = lambda name: name.replace("vision_tower.", "vision_tower.vision_model.")  # transformers 5 saves new names
        rewrite(folder, lambda name, tensor: {old(name): tensor}, shard_size)
    if name in QUANTISED:
        quantise(folder, *QUANTISED[name], shard_size // 4)
    print(
        name,
        sum(os.path.getsize(p) for p in glob.glob(f"{folder}/*")) // 1000,
        "KB",
        len(glob.glob(f"{folder}/*.safetensors")),
        "files",
    )


if __name__ == "__main__":
    for name in sys.argv[2:]:
        make(f"{sys.argv[1]}/{name}", name)
