"""Loads from a server that speaks the language of the Hugging Face hub.

Environment: as of oracle/command.py.
"""

import json
import os
import shutil
import unittest
from unittest import mock

from server import Answer
from test_web import WebCase, command

COMMITS = {"main": "a" * 40, "v1": "b" * 40, "v%231": "d" * 40, "refs%2Fpr%2F1": "e" * 40}
TOKEN = "hf_secrettoken"


class Hub(WebCase):
    """The one repository org/model has the model's files, in every revision; its large ones are elsewhere."""

    def setUp(self):
        super().setUp()
        self.storage = self.serve()
        self.hub = self.serve(self.answer)
        self.asked = []
        self.gated = False
        (self.work / "home").mkdir()
        self.enterContext(mock.patch.dict(os.environ, {"HF_ENDPOINT": self.hub.url, "HOME": str(self.work / "home")}))
        for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME"):
            os.environ.pop(name, None)

    def answer(self, request):
        if self.gated and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, {"X-Error-Message": "Access to model org/model is restricted."})
        parts = request.path.split("/")
        if parts[:5] == ["api", "models", "org", "model", "revision"]:
            files = [{"rfilename": file.name} for file in self.model.iterdir()]
            files += [{"rfilename": "original/model.safetensors"}, {"rfilename": ".gitattributes"}]
            body = {"sha": COMMITS.get(parts[5], parts[5]), "siblings": files}
            return Answer(200, body=json.dumps(body).encode())
        if parts[:3] == ["org", "model", "resolve"]:
            self.asked.append(parts[3])
            return Answer(302, {"Location": f"{self.storage.url}/model/{parts[4]}"})
        return Answer(404, {"X-Error-Message": "Repository not found"})

    def test_a_revision_is_one_commit(self):
        for path, commit in (
            ("hf://org/model", "main"),
            ("hf://org/model@v1", "v1"),
            ("hf://org/model@v#1", "v%231"),
            ("hf://org/model@refs/pr/1", "refs%2Fpr%2F1"),
            ("hf://org/model@" + "c" * 40, ""),
        ):
            self.asked.clear()
            self.assert_loads(path, self.work / "saved", ranks=2)
            self.assert_same(self.work / "saved")
            self.assertEqual(set(self.asked), {COMMITS.get(commit, "c" * 40)})
            lists = [each for each in self.hub.requests if each.path.startswith("api/")]
            self.assertEqual(len(lists), 1)
            self.hub.requests.clear()

    def test_tokens_are_for_the_hub_alone(self):
        self.gated = True
        self.assert_fails(self.load("hf://org/model", self.work / "saved"), "hf://org/model", "401", "restricted",
                          "HF_TOKEN")  # fmt: skip
        cache = self.work / "home/.cache/huggingface"
        cache.mkdir(parents=True)
        (cache / "token").write_text(TOKEN + "\n")
        result = self.assert_loads("hf://org/model", self.work / "saved")
        self.assertNotIn(TOKEN, result.stdout + result.stderr)
        self.assertFalse([each for each in self.storage.requests if "authorization" in each.headers])
        with mock.patch.dict(os.environ, {"HF_TOKEN": "hf_other\n"}):
            result = self.load("hf://org/model", self.work / "saved")
            self.assert_fails(result, "the token gives no access")
            self.assertNotIn("hf_other", result.stderr)

    def test_what_is_not_there(self):
        self.assert_fails(self.load("hf://org/absent", self.work / "saved"), "hf://org/absent", "Repository not found")
        self.assert_fails(self.load("hf://model", self.work / "saved"), "hf://ORG/NAME")
        self.assert_fails(self.load("hf://org/model/below", self.work / "saved"), "hf://org/model")

    def test_a_cache_as_the_hub_s_own_tools_have_it(self):
        cache = self.work / "cache"
        for _ in range(2):
            before = len(self.storage.requests)
            self.assert_loads("hf://org/model", self.work / "saved", "--cache", cache, ranks=2)
            self.assert_same(self.work / "saved")
        self.assertFalse([each for each in self.storage.requests[before:] if each.path.endswith(".safetensors")])
        model = cache / "models--org--model"
        self.assertEqual((model / "refs/main").read_text(), COMMITS["main"])
        for file in self.model.iterdir():
            kept = model / "snapshots" / COMMITS["main"] / file.name
            self.assertEqual(kept.read_bytes(), file.read_bytes())
            self.assertEqual(kept.resolve().parent, model / "blobs")
        self.assert_loads("hf://org/model@refs/pr/1", self.work / "saved", "--cache", cache)
        self.assertEqual((model / "refs/refs/pr/1").read_text(), COMMITS["refs%2Fpr%2F1"])
        # What the tools have downloaded is as good.
        shutil.copytree(model / "snapshots" / COMMITS["main"], model / "snapshots" / COMMITS["v1"])
        before = len(self.storage.requests)
        self.assert_loads("hf://org/model@v1", self.work / "saved", "--cache", cache)
        self.assertFalse([each for each in self.storage.requests[before:] if each.path.endswith(".safetensors")])
        self.assert_loads(model, self.work / "saved")
        self.assert_same(self.work / "saved")

    def test_what_is_damaged_in_the_cache_is_fetched_anew(self):
        cache = self.work / "cache"
        self.assert_loads("hf://org/model", self.work / "saved", "--cache", cache)
        kept = sorted((cache / "models--org--model/snapshots" / COMMITS["main"]).glob("*.safetensors"))

        def replace(file, size):
            """As of other tools, without the size in its name."""
            content = file.read_bytes()[:size]
            file.unlink()
            file.write_bytes(content)

        for damage in (
            lambda file: os.truncate(file, 100_000),
            lambda file: os.truncate(file, 0),
            lambda file: replace(file, 100_000),
            lambda file: replace(file, 0),
        ):
            damage(kept[1])
            for _ in range(2):
                before = len(self.storage.requests)
                self.assert_loads("hf://org/model", self.work / "saved", "--cache", cache, ranks=2)
                self.assert_same(self.work / "saved")
            self.assertFalse([each for each in self.storage.requests[before:] if each.path.endswith(".safetensors")])

    def test_a_path_does_not_lead_out_of_the_cache(self):
        inside = self.model / "model-00001-of-00003.safetensors"
        for path in (f"hf://org/model@{'c' * 40}/{inside}", f"hf://org/model@{'c' * 40}/../{inside.name}"):
            self.assert_fails(self.load(path, self.work / "saved", "--cache", self.work / "cache"), "404")

    def test_one_file(self):
        result = command.run("inspect", "hf://org/model/model-00001-of-00003.safetensors")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("layers.0.0.weight", result.stdout)


if __name__ == "__main__":
    unittest.main()
