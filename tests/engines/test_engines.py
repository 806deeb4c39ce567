"""Engines with the weights from safeshuffle do what they do with their own loaders. Run by scripts/test-engines.

Environment: MODELS, a directory for tiny models (made if it is empty); what its interpreter has.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "remote"))

import server  # noqa: E402

MODELS = Path(os.environ["MODELS"])
UNQUANTISED = (
    "llama", "qwen3_moe", "gemma3", "phi3", "olmo2", "gpt_neox", "mixtral", "deepseek_v3", "gpt_oss", "llava", "mamba2",
)  # fmt: skip
QUANTISED = ("llama_awq", "llama_gptq", "llama_fp8", "llama_fp8_channel", "llama_fp8_block", "gpt_oss_mxfp4")
# Their loaders change what they are given, or what they have filled.
COMPUTED = ("gpt_oss", "gpt_oss_mxfp4", "mamba2")
# By what the CPU must have for vLLM's only kernels.
NEED = {"amx_tile": ("llama_fp8_block", "gpt_oss_mxfp4"), "avx512f": ("llama_awq", "llama_gptq")}


def run(program, world, *arguments, **environment):
    """What it prints, by model."""
    launch = [sys.executable] if world == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone",
                                                  "--nproc-per-node", str(world)]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:  # where torchrun and vLLM leave files
        result = subprocess.run(
            [*launch, HERE / program, *arguments], capture_output=True, text=True, timeout=1800, check=False,
            env={**os.environ, "TMPDIR": scratch, **environment},
        )  # fmt: skip
    if result.returncode != 0:
        raise AssertionError(f"{program} on {world} ranks:\n{result.stderr[-5000:]}")
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {line.pop("model"): line for line in lines}


def paths(names):
    return [str(MODELS / name) for name in names]


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in UNQUANTISED + QUANTISED if not (MODELS / name / "config.json").exists()]
        if missing:
            subprocess.run([sys.executable, HERE / "models.py", MODELS, *missing], check=True, capture_output=True)

    def test_vllm_generates_the_same_tokens(self):
        cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
        left_out = [name for flag, models in NEED.items() if flag not in cpu for name in models]
        names = [name for name in UNQUANTISED + QUANTISED if name not in left_out]
        print(f"vllm: not run, for want of {', '.join(NEED.keys() - set(cpu))}: {left_out}", flush=True)
        for world in (1, 2):
            expected = run("generate.py", world, "auto", *paths(names))
            generated = run("generate.py", world, "safeshuffle", *paths(names))
            self.assertEqual(sorted(generated), sorted(names))
            for name, line in generated.items():
                with self.subTest(model=name, world=world):
                    self.assertEqual(line["tokens"], expected[name]["tokens"])
                    if expected[name]["reloaded"] == expected[name]["tokens"]:  # vLLM itself can, on the CPU
                        self.assertEqual(line["reloaded"], line["tokens"])
                    print(f"vllm {name} on {world}: captured {100 * line['share']:.1f} %", flush=True)
                    self.assertGreater(line["share"], 0.2 if name in COMPUTED else 0.999)

    def test_vllm_takes_weights_from_a_server(self):
        with tempfile.TemporaryDirectory() as work, server.WebServer(MODELS) as web:
            bare = str(Path(work) / "llama")
            shutil.copytree(MODELS / "llama", bare, ignore=shutil.ignore_patterns("*.safetensors*"))
            for world in (1, 2):
                expected = run("generate.py", world, "auto", *paths(["llama"]))["llama"]["tokens"]
                generated = run("generate.py", world, "safeshuffle", bare, WEIGHTS=f"{web.url}/llama")["llama"]
                self.assertEqual((generated["tokens"], generated["reloaded"]), (expected, expected))

    def test_transformers_has_the_same_logits(self):
        for world in (1, 2):
            names = [name for name in UNQUANTISED if name != "mamba2"]  # which transformers does not cut
            results = run("logits.py", world, *paths(names))
            self.assertEqual(sorted(results), sorted(names))
            for name, line in results.items():
                with self.subTest(model=name, world=world):
                    self.assertEqual(line, {"weights": True, "logits": True, "finite": True})


if __name__ == "__main__":
    unittest.main()
