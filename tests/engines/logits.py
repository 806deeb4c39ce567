"""Logits by transformers, plain and with weights from safeshuffle, of one model after the other: logits.py MODEL...
Under torchrun, its processes are the ranks of tensor-parallel models. A line of JSON for each.
"""

import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.distributed import DistributedConfig

from safeshuffle.integrations.transformers import from_pretrained

PROMPT = torch.tensor([[1, 5, 9, 13, 44, 326, 280, 413]])
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def logits_of(model):
    with torch.no_grad():
        logits = model.eval()(PROMPT).logits
    return logits.full_tensor() if hasattr(logits, "full_tensor") else logits


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def compare(path):
    vision = os.path.exists(f"{path}/processor_config.json")
    kind = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    arguments = {"dtype": "auto"}
    if WORLD > 1:
        arguments["distributed_config"] = DistributedConfig(tp_size=WORLD)
    theirs = kind.from_pretrained(path, **arguments)
    ours = from_pretrained(kind, path, **arguments)
    expected, weights = theirs.state_dict(), ours.state_dict()
    return {
        "model": os.path.basename(path),
        "weights": expected.keys() == weights.keys()
        and all(torch.equal(local(expected[k]), local(weights[k])) for k in weights),
        "logits": torch.equal(logits_of(theirs), logits_of(ours)),
        "finite": bool(logits_of(ours).isfinite().all()),
    }


if __name__ == "__main__":
    for each in sys.argv[1:]:
        result = compare(each)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(result), flush=True)
