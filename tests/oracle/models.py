"""Models: every tensor's name, its shape, and what a rank keeps of it. Some families as vLLM cuts them, written down
from its layers and not from the rules under test; and what scripts/check-models recorded when it compared every type
with transformers and vLLM."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

import numpy as np

import checkpoint
from placement import shard_along

ROOT = Path(__file__).resolve().parents[2]

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
    refused: tuple = ()  # numbers of ranks


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


_SMALL = {
    "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 80, "vocab_size": 96,
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


def small_models():
    """With two KV heads, so that four ranks share them."""
    return [
        small_llama(),
        _model(llama, **{**_SMALL, "model_type": "qwen3", "tie_word_embeddings": True}),
        _model(mixtral, **{**_SMALL, "model_type": "mixtral", "num_local_experts": 4}),
        _model(falcon, **{**_FALCON, "new_decoder_architecture": True, "multi_query": True,
                          "num_kv_heads": 2}),
        _model(bloom, model_type="bloom", n_embed=64, num_attention_heads=8, n_layer=2,
               vocab_size=96),
    ]  # fmt: skip


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


def _recorded_cut(extent, parts):
    """`parts`: by number of ranks, in how many equal units the axis is cut, or each rank's [begin, length]."""

    def cut(rank, world):
        kept = parts.get(str(world), world)
        if isinstance(kept, int):
            unit, mine = extent // kept, rank * kept // world
            return [(mine * unit, (mine + 1) * unit)]
        return [(begin, begin + length) for begin, length in kept[rank]]

    return cut


def _recorded_weight(dtype, shape, axis=None, parts=None):
    """As tests/unit/models_test.cpp describes a record."""
    if axis is None:
        return Weight(tuple(shape), dtype=dtype)
    return Weight(tuple(shape), axis, _recorded_cut(shape[axis], parts or {}), dtype)


def _recorded(name, record):
    quantised = "quantization_config" in record["config"]
    dtypes = record.get("dtypes", {})
    weights = {
        tensor: _recorded_weight(dtypes.get(tensor, "F32" if quantised else None), *box)
        for tensor, box in record["tensors"].items()
    }
    return Model(name, record["config"], weights, tuple(map(int, record.get("refused", {}))))


def recorded_models():
    """The first type of every file of rules, and all that are quantised."""
    records = json.loads((ROOT / "tests/unit/models.json").read_text(encoding="utf-8"))
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("configs/tp/*.json"))]
    types = [next((t for t in rules["model_types"] if t in records), None) for rules in files]
    quantised = [name for name, record in records.items() if "quantization_config" in record["config"]]
    return [_recorded(name, records[name]) for name in [*filter(None, types), *quantised]]
