"""How vLLM loads a model of 2 GB by its own loader and by safeshuffle's, in turns: seconds, the most memory beyond what
there was before, and bytes read from storage, of all ranks. Run by scripts/test-engines --measure.

Environment: MODELS, a directory for the model.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

from lib import page_cache, usage
from test_engines import HERE, MODELS, run

MODEL = "llama_1b"
FORMATS = ("auto", "safeshuffle")
TURNS = 3
FIELDS = ("seconds", "resident", "anonymous", "read")


# What a rank does.


def measured(load):
    """What a loader's load_weights takes."""
    import torch.distributed as dist
    from generate import WORLD

    def load_weights(loader, model, model_config):
        page_cache.touch_memory(2 * sum(each.nbytes for each in model.parameters()))
        if WORLD > 1:
            dist.barrier()
        usage.forget_peak()
        before, read = usage.memory(), usage.read_bytes()
        peak, ended = usage.AnonymousPeak("self"), threading.Event()
        watching = threading.Thread(target=lambda: [peak.look() for _ in iter(lambda: ended.wait(0.01), True)])
        watching.start()
        begin = time.perf_counter()
        load(loader, model, model_config)
        seconds = time.perf_counter() - begin
        ended.set()
        watching.join()
        mine = (
            seconds, usage.memory()["peak_resident_bytes"] - before["resident_bytes"],
            peak.bytes - before["anonymous_bytes"], usage.read_bytes() - read,
        )  # fmt: skip
        ranks = [mine]
        if WORLD > 1:
            ranks = [None] * WORLD
            dist.all_gather_object(ranks, mine)
        if os.environ.get("RANK", "0") == "0":
            longest, *sums = max(rank[0] for rank in ranks), *map(sum, list(zip(*ranks))[1:])
            print(json.dumps({"model": MODEL, **dict(zip(FIELDS, (longest, *sums)))}), flush=True)

    return load_weights


def load_once(load_format, path):
    from generate import loaded
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    from safeshuffle.integrations.vllm import SafeshuffleModelLoader

    kind = DefaultModelLoader if load_format == "auto" else SafeshuffleModelLoader
    kind.load_weights = measured(kind.load_weights)
    loaded(load_format, path)


# What starts them.


def main():
    path = MODELS / MODEL
    if not (path / "config.json").exists():
        subprocess.run([sys.executable, HERE / "models.py", MODELS, MODEL], check=True, capture_output=True)
    files = sorted(path.glob("*.safetensors"))
    preparer = page_cache.Preparer()
    results = {}
    for turn in range(TURNS):
        for state in ("cold", "warm"):
            for world in (1, 2):
                for load_format in FORMATS[:: 1 if turn % 2 else -1]:
                    preparer.prepare(files, state, "keep")
                    lines = run("measure.py", world, load_format, str(path))
                    results.setdefault((state, world, load_format), []).append(lines[MODEL])
    for (state, world, load_format), lines in results.items():
        texts = []
        for field in FIELDS:
            values = sorted(line[field] / (1 if field == "seconds" else 1e9) for line in lines)
            texts.append(f"{field} {statistics.median(values):.2f} ({values[0]:.2f}-{values[-1]:.2f})")
        print(f"{state}, {world} ranks, {load_format}: {', '.join(texts)}")


if __name__ == "__main__":
    load_once(*sys.argv[1:]) if sys.argv[1:] else main()
