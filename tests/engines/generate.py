"""Greedy tokens by vLLM, a line of JSON for each model: generate.py FORMAT MODEL... With the environment variable
WEIGHTS, these are there, and only the rest of the model in MODEL. Under torchrun, its processes are the ranks. After what is generated, all weights are zeroed, reloaded, and tokens generated again.
"""

import gc
import json
import os
import sys

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
    TORCHDYNAMO_DISABLE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_ALLOW_INSECURE_SERIALIZATION="1",
    VLLM_LOGGING_LEVEL="ERROR",
)  # fmt: skip

import torch
import torch.distributed as dist

torch.cpu._init_amx()  # vLLM's kernels use AMX without asking the system for it

import vllm._custom_ops
from vllm import LLM, SamplingParams
from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

import safeshuffle.capture

WORLD = int(os.environ.get("WORLD_SIZE", "1"))
SAMPLING = SamplingParams(max_tokens=8, temperature=0, detokenize=False, ignore_eos=True, logprobs=0)


def scaled_fp8_quant(weight, scale):
    """Fuses FP8 weights of one scale after loading; the build for CPUs has no kernel for it."""
    return (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


vllm._custom_ops.scaled_fp8_quant = scaled_fp8_quant
shares = []
load = safeshuffle.capture.Captured.load


def noted(self, session):
    report = load(self, session)
    shares.append(report["captured_share"])
    return report


safeshuffle.capture.Captured.load = noted


def join(name):
    """A group for each model, under a name of its own."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", store=dist.PrefixStore(name, store), rank=rank, world_size=WORLD)


def tokens_of(llm):
    output = llm.generate([{"prompt_token_ids": [1, 5, 9, 13]}], SAMPLING, use_tqdm=False)[0].outputs[0]
    llm.reset_prefix_cache()
    return [*output.token_ids, round(output.cumulative_logprob, 5)]


def forget(model):
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.itemsize > 1:
            parameter.data.zero_()


def reloaded(llm):
    """Tokens after the weights were zeroed and loaded again; None where vLLM cannot do that on CPUs."""
    llm.apply_model(forget)
    try:
        llm.collective_rpc("reload_weights")
    except RuntimeError:
        return None
    return tokens_of(llm)


def loaded(load_format, path):
    """The engine with a model."""
    if WORLD > 1:
        join(path)
    return LLM(
        model=path, load_format=load_format, enforce_eager=True,
        model_loader_extra_config={"path": os.environ["WEIGHTS"]} if "WEIGHTS" in os.environ else {},
        num_gpu_blocks_override=16, max_model_len=64, dtype="bfloat16",
        skip_tokenizer_init=not os.path.exists(f"{path}/tokenizer.json"), tensor_parallel_size=WORLD,
        distributed_executor_backend="external_launcher" if WORLD > 1 else None,
    )  # fmt: skip


def generate(load_format, path):
    llm = loaded(load_format, path)
    first = tokens_of(llm)
    again = reloaded(llm)
    share = shares.pop() if shares else None
    if os.environ.get("RANK", "0") == "0":
        print(
            json.dumps({"model": os.path.basename(path), "tokens": first, "reloaded": again, "share": share}),
            flush=True,
        )
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()


if __name__ == "__main__":
    for each in sys.argv[2:]:
        generate(sys.argv[1], each)
