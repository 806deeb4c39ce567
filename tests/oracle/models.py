"""The architectures with built-in rules: every tensor's name, its shape, and what a rank keeps of it as
vLLM cuts it, written down from vLLM's layers and not from the rules under test."""

import json
from dataclasses import dataclass
from typing import Callable, Optional

import numpy as np

import checkpoint
from placement import shard_along

# (rank, world) → pairs (begin, end) along the cut axis.
Cut = Callable[[int, int], list]


@dataclass(frozen=True)
class Weight:
    shape: tuple
    axis: int = 0
    cut: Optional[Cut] = None  # None: whole on every rank
    dtype: Optional[str] = None  # None: any


@dataclass(frozen=True)
class Model:
    name: str
    config: dict
    weights: dict  # name: Weight


def shard(tensor, weight, rank, world):
    """What a rank keeps of a tensor of that weight."""
    if weight.cut is None:
        return tensor
    return shard_along(tensor, weight.axis, weight.cut(rank, world))


def even(units, unit=1, start=0):
    """The rank's equal share of `units`, each of `unit` elements."""

    def cut(rank, world):
        assert units % world == 0, f"{units} units on {world} ranks"
        each = units // world * unit
        return [(start + rank * each, start + (rank + 1) * each)]

    return cut


def kv_heads(heads, head, start=0):
    """As `even`, but where there are fewer heads than ranks, neighbours hold the same one."""

    def cut(rank, world):
        if heads >= world:
            return even(heads, head, start)(rank, world)
        mine = start + rank // (world // heads) * head
        return [(mine, mine + head)]

    return cut


def fused(*cuts):
    return lambda rank, world: [interval for cut in cuts for interval in cut(rank, world)]


def column(shape, cut, bias=False):
    """Rows of the weight and elements of the bias."""
    weights = {"weight": Weight(shape, 0, cut)}
    return {**weights, "bias": Weight(shape[:1], 0, cut)} if bias else weights


def row(shape, cut, bias=False):
    """Columns of the weight; the bias is added once, so all have it."""
    weights = {"weight": Weight(shape, 1, cut)}
    return {**weights, "bias": Weight(shape[:1])} if bias else weights


def norm(size, bias=False):
    return {"weight": Weight((size,)), **({"bias": Weight((size,))} if bias else {})}


def vocabulary(size, hidden):
    return {"weight": Weight((size, hidden), 0, even(size))}


def named(prefix, modules):
    return {
        f"{prefix}{module}.{kind}": weight
        for module, weights in modules.items()
        for kind, weight in weights.items()
    }


def stack(prefix, layers, modules, outer):
    """`modules` in every layer, `outer` once."""
    weights = dict(outer)
    for layer in range(layers):
        weights.update(named(f"{prefix}{layer}.", modules))
    return weights


def _attention(c, bias=False):
    hidden, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head = c.get("head_dim", hidden // heads)
    return {
        "self_attn.q_proj": column((heads * head, hidden), even(heads, head), bias),
        "self_attn.k_proj": column((kv * head, hidden), kv_heads(kv, head), bias),
        "self_attn.v_proj": column((kv * head, hidden), kv_heads(kv, head), bias),
        "self_attn.o_proj": row((hidden, heads * head), even(heads, head)),
    }


def _gated_mlp(c):
    hidden, wide = c["hidden_size"], c["intermediate_size"]
    return {
        "mlp.gate_proj": column((wide, hidden), even(wide)),
        "mlp.up_proj": column((wide, hidden), even(wide)),
        "mlp.down_proj": row((hidden, wide), even(wide)),
    }


def _decoder(c, modules):
    """The frame that llama's descendants share."""
    hidden = c["hidden_size"]
    norms = {"input_layernorm": norm(hidden), "post_attention_layernorm": norm(hidden)}
    ends = {"model.embed_tokens": vocabulary(c["vocab_size"], hidden), "model.norm": norm(hidden)}
    if not c.get("tie_word_embeddings", False):
        ends["lm_head"] = vocabulary(c["vocab_size"], hidden)
    layers = c["num_hidden_layers"]
    return stack("model.layers.", layers, {**norms, **modules}, named("", ends))


def llama(c):
    return _decoder(c, {**_attention(c), **_gated_mlp(c)})


def qwen2(c):
    return _decoder(c, {**_attention(c, bias=True), **_gated_mlp(c)})


def qwen3(c):
    norms = {f"self_attn.{name}_norm": norm(c["head_dim"]) for name in "qk"}
    return _decoder(c, {**_attention(c), **norms, **_gated_mlp(c)})


def gemma(c):
    return llama(c)


def _mixture(module, c, experts, wide, gate, up, down):
    """A router, and numbered experts with these names of projections."""
    hidden = c["hidden_size"]
    moe = {f"{module}.gate": {"weight": Weight((experts, hidden))}}
    for expert in range(experts):
        path = f"{module}.experts.{expert}."
        moe[path + gate] = moe[path + up] = column((wide, hidden), even(wide))
        moe[path + down] = row((hidden, wide), even(wide))
    return moe


def mixtral(c):
    experts, wide = c["num_local_experts"], c["intermediate_size"]
    moe = _mixture("block_sparse_moe", c, experts, wide, "w1", "w3", "w2")
    return _decoder(c, {**_attention(c), **moe})


def _qwen_experts(c):
    experts, wide = c["num_experts"], c["moe_intermediate_size"]
    return _mixture("mlp", c, experts, wide, "gate_proj", "up_proj", "down_proj")


def qwen2_moe(c):
    hidden, wide = c["hidden_size"], c["shared_expert_intermediate_size"]
    shared = {
        "mlp.shared_expert.gate_proj": column((wide, hidden), even(wide)),
        "mlp.shared_expert.up_proj": column((wide, hidden), even(wide)),
        "mlp.shared_expert.down_proj": row((hidden, wide), even(wide)),
        "mlp.shared_expert_gate": {"weight": Weight((1, hidden))},
    }
    return _decoder(c, {**_attention(c, bias=True), **_qwen_experts(c), **shared})


def qwen3_moe(c):
    """Also with a layer without experts."""
    norms = {f"self_attn.{name}_norm": norm(c["head_dim"]) for name in "qk"}
    weights = _decoder(c, {**_attention(c), **norms, **_qwen_experts(c)})
    for layer in c.get("mlp_only_layers", []):
        prefix = f"model.layers.{layer}."
        weights = {n: w for n, w in weights.items() if not n.startswith(prefix + "mlp.")}
        weights.update(named(prefix, _gated_mlp(c)))
    return weights


def phi3(c):
    hidden, wide = c["hidden_size"], c["intermediate_size"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    head = hidden // heads
    qkv = fused(
        even(heads, head),
        kv_heads(kv, head, heads * head),
        kv_heads(kv, head, (heads + kv) * head),
    )
    return _decoder(c, {
        "self_attn.qkv_proj": column(((heads + 2 * kv) * head, hidden), qkv),
        "self_attn.o_proj": row((hidden, heads * head), even(heads, head)),
        "mlp.gate_up_proj": column((2 * wide, hidden), fused(even(wide), even(wide, 1, wide))),
        "mlp.down_proj": row((hidden, wide), even(wide)),
    })  # fmt: skip


def falcon(c):
    """Second generation: [kv_heads, group + 2, head_dim]. First: one group of all query heads, or with
    multi_query off, a group per query head."""
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    bias, second = c["bias"], c.get("new_decoder_architecture", False)
    kv = c["num_kv_heads"] if second else 1 if c["multi_query"] else heads
    head, group = hidden // heads, heads // kv
    unit = (group + 2) * head

    def qkv(rank, world):
        if kv >= world:
            return even(kv, unit)(rank, world)
        sharers = world // kv
        start = rank // sharers * unit
        query = even(group, head, start)(rank % sharers, sharers)
        return [*query, (start + group * head, start + unit)]

    norms = ("ln_attn", "ln_mlp") if second else ("input_layernorm",)
    modules = {
        **{name: norm(hidden, True) for name in norms},
        "self_attention.query_key_value": column((kv * unit, hidden), qkv, bias),
        "self_attention.dense": row((hidden, hidden), even(heads, head), bias),
        "mlp.dense_h_to_4h": column((4 * hidden, hidden), even(4 * hidden), bias),
        "mlp.dense_4h_to_h": row((hidden, 4 * hidden), even(4 * hidden), bias),
    }
    ends = {
        "transformer.word_embeddings": vocabulary(c["vocab_size"], hidden),
        "transformer.ln_f": norm(hidden, True),
        "lm_head": vocabulary(c["vocab_size"], hidden),
    }
    return stack("transformer.h.", c["num_hidden_layers"], modules, named("", ends))


def _fused_heads(hidden, heads):
    """[heads, 3, head_dim]"""
    return column((3 * hidden, hidden), even(heads, 3 * hidden // heads), True)


def bloom(c):
    hidden, heads = c["n_embed"], c["num_attention_heads"]
    modules = {
        "input_layernorm": norm(hidden, True),
        "post_attention_layernorm": norm(hidden, True),
        "self_attention.query_key_value": _fused_heads(hidden, heads),
        "self_attention.dense": row((hidden, hidden), even(heads, hidden // heads), True),
        "mlp.dense_h_to_4h": column((4 * hidden, hidden), even(4 * hidden), True),
        "mlp.dense_4h_to_h": row((hidden, 4 * hidden), even(4 * hidden), True),
    }
    ends = {
        "word_embeddings": vocabulary(c["vocab_size"], hidden),
        "word_embeddings_layernorm": norm(hidden, True),
        "ln_f": norm(hidden, True),
    }
    return stack("h.", c["n_layer"], modules, named("", ends))


def gpt_neox(c):
    hidden, wide, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    modules = {
        "input_layernorm": norm(hidden, True),
        "post_attention_layernorm": norm(hidden, True),
        "attention.query_key_value": _fused_heads(hidden, heads),
        "attention.dense": row((hidden, hidden), even(heads, hidden // heads), True),
        "attention": {"bias": Weight((1, 1, 16, 16)), "masked_bias": Weight(())},
        "attention.rotary_emb": {"inv_freq": Weight((hidden // heads // 2,))},
        "mlp.dense_h_to_4h": column((wide, hidden), even(wide), True),
        "mlp.dense_4h_to_h": row((hidden, wide), even(wide), True),
    }
    ends = {
        "gpt_neox.embed_in": vocabulary(c["vocab_size"], hidden),
        "gpt_neox.final_layer_norm": norm(hidden, True),
        "embed_out": vocabulary(c["vocab_size"], hidden),
    }
    return stack("gpt_neox.layers.", c["num_hidden_layers"], modules, named("", ends))


_SMALL = {
    "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 80, "vocab_size": 96,
}  # fmt: skip
_QWEN_MOE = {
    "num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
}  # fmt: skip
_FALCON = {
    "model_type": "falcon", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2,
    "vocab_size": 96, "bias": False,
}  # fmt: skip


_DTYPES = ("BF16", "F32", "U8")


def _model(build, **config):
    return Model(config["model_type"], config, build(config))


def small_llama(layers=2):
    return _model(llama, **{**_SMALL, "model_type": "llama", "num_hidden_layers": layers})


def write(directory, model):
    """Writes three files with random bits and a config.json; returns {name: Tensor}."""
    rng = np.random.default_rng(len(model.weights))
    tensors = {
        name: checkpoint.random_tensor(rng, weight.dtype or _DTYPES[i % len(_DTYPES)], weight.shape)
        for i, (name, weight) in enumerate(model.weights.items())
    }
    names = list(tensors)
    files = {
        f"model-{i + 1:05}-of-00003.safetensors": {n: tensors[n] for n in names[i::3]}
        for i in range(3)
    }
    for name, group in files.items():
        checkpoint.write_by_reference(directory / name, group)
    checkpoint.write_index(directory, files, json.dumps(model.config))
    return tensors


# By quantisation: what config.json says of it; every tensor of a linear layer by dtype, and what its axes
# count: so many of the layer's outputs or inputs for an element. None: the tensor does not follow the layer.
_OUT, _IN = (("out", 1), ("in", 1))
_GROUP = 32
_QUANTISED = [
    ({"quant_method": "gptq", "bits": 4, "group_size": _GROUP}, {
        "qweight": ("I32", ("in", 8), _OUT), "qzeros": ("I32", ("in", _GROUP), ("out", 8)),
        "scales": ("F16", ("in", _GROUP), _OUT), "g_idx": ("I32", _IN)}),
    ({"quant_method": "gptq", "bits": 4, "group_size": _GROUP, "desc_act": True}, {
        "qweight": ("I32", ("in", 8), _OUT), "qzeros": ("I32", (None, 8), ("out", 8)),
        "scales": ("F16", (None, 8), _OUT), "g_idx": ("I32", _IN)}),
    ({"quant_method": "awq", "bits": 4, "group_size": _GROUP}, {
        "qweight": ("I32", _IN, ("out", 8)), "qzeros": ("I32", ("in", _GROUP), ("out", 8)),
        "scales": ("F16", ("in", _GROUP), _OUT)}),
    ({"quant_method": "compressed-tensors"}, {
        "weight_packed": ("I32", _OUT, ("in", 8)), "weight_scale": ("BF16", _OUT, ("in", _GROUP)),
        "weight_zero_point": ("I32", ("out", 8), ("in", _GROUP)), "weight_shape": ("I64", (None, 2))}),
    ({"quant_method": "compressed-tensors"}, {
        "weight": ("F8_E4M3", _OUT, _IN), "weight_scale": ("BF16", _OUT, (None, 1))}),
    ({"quant_method": "fp8"}, {
        "weight": ("F8_E4M3", _OUT, _IN), "weight_scale": ("F32",), "input_scale": ("F32", (None, 1))}),
    ({"quant_method": "fp8", "weight_block_size": [_GROUP, _GROUP]}, {
        "weight": ("F8_E4M3", _OUT, _IN), "weight_scale_inv": ("F32", ("out", _GROUP), ("in", _GROUP))}),
    ({"quant_method": "modelopt"}, {
        "weight": ("U8", _OUT, ("in", 2)), "weight_scale": ("F8_E4M3", _OUT, ("in", 16)),
        "weight_scale_2": ("F32",), "input_scale": ("F32",)}),
]  # fmt: skip


def _divided(cut, by):
    def divided(rank, world):
        pairs = cut(rank, world)
        assert all(begin % by == 0 and end % by == 0 for begin, end in pairs)
        return [(begin // by, end // by) for begin, end in pairs]

    return divided


def _stored(weight, dtype, axes):
    """A tensor of a quantised layer, by the weight that the layer would have."""
    extents = {"out": weight.shape[0], "in": weight.shape[1]}
    shape = tuple(by if of is None else extents[of] // by for of, by in axes)
    for axis, (of, by) in enumerate(axes):
        if of == ("out", "in")[weight.axis] and weight.cut is not None:
            return Weight(shape, axis, _divided(weight.cut, by), dtype)
    return Weight(shape, dtype=dtype)


def _quantised(model, method, layout):
    """The same model with its linear layers quantised."""
    weights = {}
    for name, weight in model.weights.items():
        module, _, kind = name.rpartition(".")
        if kind == "weight" and module.endswith("_proj"):
            for leaf, (dtype, *axes) in layout.items():
                weights[f"{module}.{leaf}"] = _stored(weight, dtype, axes)
        else:
            weights[name] = weight
    return Model(f"{model.name}, {method}", {**model.config, "quantization_config": method}, weights)


def small_quantised():
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8, "head_dim": 32}
    mixture = {"num_experts": 2, "moe_intermediate_size": 256}
    models = []
    for i, (method, layout) in enumerate(_QUANTISED):
        config = {**_SMALL, **sizes, "num_hidden_layers": 1}
        if i % 2 == 0:
            model = _model(qwen3_moe, **{**config, **mixture, "model_type": "qwen3_moe"})
        else:
            model = _model(llama, **{**config, "model_type": "llama"})
        models.append(_quantised(model, method, layout))
    return models


def small_models():
    """One of every architecture, with two KV heads (so that four ranks share them) where it can."""
    old = {**_FALCON, "new_decoder_architecture": False}
    return [
        small_llama(),
        _model(llama, **{**_SMALL, "model_type": "mistral", "num_key_value_heads": 4}),
        _model(qwen2, **{**_SMALL, "model_type": "qwen2", "tie_word_embeddings": True}),
        _model(qwen3, **{**_SMALL, "model_type": "qwen3", "head_dim": 16}),
        _model(gemma, **{**_SMALL, "model_type": "gemma", "num_key_value_heads": 1,
                         "head_dim": 16, "tie_word_embeddings": True}),
        _model(mixtral, **{**_SMALL, "model_type": "mixtral", "num_local_experts": 4}),
        _model(qwen2_moe, **{**_SMALL, **_QWEN_MOE, "model_type": "qwen2_moe"}),
        _model(qwen3_moe, **{**_SMALL, **_QWEN_MOE, "model_type": "qwen3_moe", "head_dim": 16,
                             "mlp_only_layers": [1]}),
        _model(phi3, **{**_SMALL, "model_type": "phi3"}),
        _model(falcon, **{**_FALCON, "new_decoder_architecture": True, "multi_query": True,
                          "num_kv_heads": 2}),
        # The first generation ignores num_kv_heads, which published files have all the same.
        _model(falcon, **{**old, "multi_query": True, "num_kv_heads": 8}),
        _model(falcon, **{**old, "multi_query": False, "bias": True}),
        _model(bloom, model_type="bloom", n_embed=64, num_attention_heads=8, n_layer=2,
               vocab_size=96),
        _model(gpt_neox, **{**_SMALL, "model_type": "gpt_neox"}),
    ]  # fmt: skip
