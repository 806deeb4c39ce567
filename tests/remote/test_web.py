"""Loads from a web server on which everything that can go wrong does: the right bytes, or one clear error.

Environment: as of oracle/command.py; RUNS: how many random cases (default 40).
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))

import numpy as np
from safetensors.numpy import load_file, save_file

import command
from server import WHOLE, Answer, Changed, Cut, Slow, Trickle, WebServer, free_port, sometimes

RUNS = int(os.environ.get("RUNS", "40"))
SECRET = "Bearer very-secret-token"
SMALL = ["--window", "256KiB", "--chunk", "128KiB", "--progress", "none", "--tp-plan", "replicate"]
INDEX = "model.safetensors.index.json"


def write_model(directory):
    """Three files and an index."""
    directory.mkdir()
    dice = np.random.default_rng(7)
    weight_map = {}
    for i in range(3):
        name = f"model-{i + 1:05}-of-00003.safetensors"
        tensors = {f"layers.{i}.{j}.weight": dice.integers(0, 256, (300, 701 + j), np.uint8) for j in range(4)}
        save_file(tensors, directory / name)
        weight_map |= dict.fromkeys(tensors, name)
    (directory / "config.json").write_text('{"model_type": "llama"}')
    (directory / INDEX).write_text(json.dumps({"weight_map": weight_map}))


class WebCase(unittest.TestCase):
    def setUp(self):
        self.work = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="safeshuffle-web-")))
        self.model = self.work / "model"
        write_model(self.model)
        self.reference = self.work / "reference"
        self.assert_loads(self.model, self.reference)

    def serve(self, fault=lambda request: None, port=0, certificate=None):
        return self.enterContext(WebServer(self.work, fault, port, certificate))

    def load(self, model, saved, *options, ranks=1, timeout=8):
        shutil.rmtree(saved, ignore_errors=True)
        words = ["load", model, *SMALL, "--timeout", str(timeout), "--save-sharded", saved, *options]
        return command.run_ranks(ranks, *words) if ranks > 1 else command.run(*words)

    def assert_loads(self, model, saved, *options, ranks=1):
        result = self.load(model, saved, *options, ranks=ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def assert_same(self, saved):
        """All ranks have everything."""
        (reference,) = self.reference.glob("*.safetensors")
        expected = load_file(reference)
        for file in saved.glob("*.safetensors"):
            tensors = load_file(file)
            self.assertEqual(tensors.keys(), expected.keys())
            for name, tensor in tensors.items():
                self.assertTrue(np.array_equal(tensor, expected[name]), name)

    def asked_bytes(self, web):
        """Of each range once, although late requests are made twice."""
        ranges = {(each.path, each.range) for each in web.requests if each.range}
        return sum(last + 1 - first for _, (first, last) in ranges)

    def assert_fails(self, result, *words, code=3):
        self.assertEqual(result.returncode, code, result.stderr)
        messages = [line for line in result.stderr.splitlines() if line.startswith("safeshuffle: error")]
        self.assertEqual(len(messages), 1, result.stderr)
        for word in words:
            self.assertIn(word, messages[0])
        self.assertEqual(list(self.work.glob("saved/*")), [])


class Works(WebCase):
    def test_each_byte_is_fetched_once_for_all_ranks(self):
        web = self.serve()
        for ranks in (1, 2, 4):
            web.requests.clear()
            saved = self.work / f"saved-{ranks}"
            self.assert_loads(f"{web.url}/model", saved, ranks=ranks)
            self.assert_same(saved)
            stored = sum(file.stat().st_size for file in self.model.iterdir())
            beginnings = 64 << 10  # of each file and rank, at most once more
            self.assertLess(self.asked_bytes(web), stored * 1.01 + 4 * ranks * beginnings)
            asked = [Path(each.path).name for each in web.requests if each.path.endswith(".json")]
            self.assertEqual(sorted(asked), ["config.json", INDEX, INDEX])  # which is also the list of files

    def test_any_path(self):
        web = self.serve()
        (self.work / "single").mkdir()
        shutil.copy(self.model / "model-00001-of-00003.safetensors", self.work / "single/model.safetensors")
        for path in ("model/", f"model/{INDEX}", "single", "single/model.safetensors"):
            with self.subTest(path):
                self.assertEqual(command.run("inspect", f"{web.url}/{path}").returncode, 0)
        # Buckets that may not be listed forbid what they do not have, such as config.json.
        web = self.serve(lambda request: None if (self.work / request.path).is_file() else Answer(403))
        self.assertEqual(command.run("inspect", f"{web.url}/single").returncode, 0)
        web = self.serve(lambda request: Answer(403) if request.method == "HEAD" else None)
        self.assertEqual(command.run("inspect", f"{web.url}/single").returncode, 0)
        got = self.work / "got"
        result = command.run("get", f"{web.url}/single", "layers.0.1.weight", "--slice", "3:5", "--output", got)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(got.stat().st_size, 2 * 702)
        self.assertEqual(
            command.run("plan", f"{web.url}/model", "--world", "2", "--tp-plan", "replicate").returncode, 0
        )

    @unittest.skipUnless(shutil.which("openssl"), "makes certificates")
    def test_certificates_are_verified(self):
        certificate = self.work / "certificate"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", certificate, "-out",
                        self.work / "authority", "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)  # fmt: skip
        with open(certificate, "a") as file:
            file.write((self.work / "authority").read_text())
        web = self.serve(certificate=certificate)
        saved = self.work / "saved"
        self.assert_fails(self.load(f"{web.url}/model", saved), "certificate", web.url)
        with unittest.mock.patch.dict(os.environ, CURL_CA_BUNDLE=str(self.work / "authority")):
            self.assert_loads(f"{web.url}/model", saved, ranks=2)
            self.assert_same(saved)
            elsewhere = f"https://localhost:{web.port}/model"
            self.assert_fails(self.load(elsewhere, self.work / "saved"), "certificate", elsewhere)

    def test_proxies_are_used(self):
        proxy = self.serve()
        with unittest.mock.patch.dict(os.environ, http_proxy=proxy.url):
            self.assert_loads("http://weights.invalid/model", self.work / "saved", ranks=2)
        self.assert_same(self.work / "saved")
        self.assertEqual({each.headers["host"] for each in proxy.requests}, {"weights.invalid"})

    def test_passwords_of_netrc(self):
        def ask_for_the_password(request):
            return None if request.headers.get("authorization") == "Basic bWU6dG9w" else Answer(401)

        web = self.serve(ask_for_the_password)
        (self.work / ".netrc").write_text("machine 127.0.0.1 login me password top")
        with unittest.mock.patch.dict(os.environ, HOME=str(self.work)):
            self.assert_loads(f"{web.url}/model", self.work / "saved")
        self.assert_same(self.work / "saved")

    def test_secrets_stay_where_they_belong(self):
        storage = self.serve()

        def ask_for_the_secret(request):
            if request.headers.get("authorization") != SECRET:
                return Answer(401)
            return Answer(302, {"Location": f"{storage.url}/{request.path}"})

        front = self.serve(ask_for_the_secret)
        saved, report, trace = self.work / "saved", self.work / "report", self.work / "trace"
        result = self.assert_loads(f"{front.url}/model", saved, "--header", f"Authorization: {SECRET}",
                                   "--report", report, "--trace", trace)  # fmt: skip
        self.assert_same(saved)
        self.assertFalse([each for each in storage.requests if "authorization" in each.headers])
        for text in (result.stdout, result.stderr, report.read_text(), trace.read_text()):
            self.assertNotIn("very-secret", text)
        # The ranges come from where the first request of each file has led to.
        self.assertLess(len(front.requests), 20)
        wrong = self.load(f"{front.url}/model", self.work / "saved", "--header", "Authorization: other-secret")
        self.assert_fails(wrong, "401", front.url)
        self.assertNotIn("other-secret", wrong.stderr + wrong.stdout)
        said = "<Code>Bad</Code><Message>no {} here</Message>"
        for header in ("Bearer a-secret", "a-secret", 'Token token="a-secret"', "session=a-secret; a=b", "a-s b"):
            for repeated in (header, "a-secret" if "a-secret" in header else "a-s b"):
                repeating = self.serve(lambda _, what=repeated: Answer(401, {}, said.format(what).encode()))
                result = self.load(f"{repeating.url}/model", saved, "--header", f"Authorization: {header}")
                self.assert_fails(result, "no *** here")

    def test_signatures_of_storage_expire(self):
        """For all requests in progress at the same time."""
        served = {}

        def signed(request):
            number = served[request.path.split("/")[0]] = served.get(request.path.split("/")[0], 0) + 1
            return Answer(403) if number > 6 else Slow(0.05)

        storage = self.serve(signed)
        signatures = iter(range(1000))

        def redirect(request):
            signature = f"signature{next(signatures)}"
            (self.work / signature).symlink_to(self.work)
            return Answer(302, {"Location": f"{storage.url}/{signature}/{request.path}"})

        self.assert_loads(f"{self.serve(redirect).url}/model", self.work / "saved")
        self.assert_same(self.work / "saved")

    def test_a_mirror_that_goes_down(self):
        mirrors = [self.enterContext(WebServer(self.work, lambda request: Slow(0.02))) for _ in range(2)]
        up = [True, True]

        def redirect(request):
            chosen = mirrors[0] if up[0] else mirrors[1]
            return Answer(302, {"Location": f"{chosen.url}/{request.path}"})

        def until_it_fails(request):
            up[0] = request.number < 12
            return Slow(0.02) if up[0] else Answer(503)

        mirrors[0].fault = until_it_fails
        self.assert_loads(f"{self.serve(redirect).url}/model", self.work / "saved")
        self.assert_same(self.work / "saved")

    def test_a_probe_of_a_server_is_for_its_loads(self):
        web = self.serve(lambda request: Slow(0.02))
        with unittest.mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.work / "probes")}):
            words = ["plan", f"{web.url}/model", "--world", "2", "--tp-plan", "replicate"]
            self.assertIn("costs: defaults for URLs", command.run(*words).stdout)
            self.assert_fails(command.run(*words, "--cache", "warm"), web.url, code=2)
            result = command.run_ranks(2, "probe", f"{web.url}/model", "--quick", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            probe = json.loads(result.stdout)
            self.assertEqual(probe["place"]["filesystem"], "http")
            self.assertEqual(probe["place"]["filesystem_device"], web.url.removeprefix("http://"))
            reads = {each["name"]: each for each in probe["measurements"] if each["name"].startswith("read")}
            self.assertEqual(list(reads), ["read_cold_buffered"])
            self.assertGreater(probe["costs"]["request_seconds"], 0.02)
            for url, is_known in ((web.url, True), (self.serve().url, False)):
                report = self.work / "report"
                self.assert_loads(f"{url}/model", self.work / "saved", "--report", report, ranks=2)
                self.assertEqual("probes" in report.read_text(), is_known)

    def test_another_source_takes_over(self):
        other = self.work / "other"
        shutil.copytree(self.model, other, copy_function=shutil.copy)  # with other times, and so tags
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                first = self.serve(lambda request: Answer(503) if request.number > 10 else Slow(0.02))
                second = self.serve()
                saved = self.work / f"saved-{ranks}"
                self.assert_loads(f"{first.url}/model", saved, "--source", f"{second.url}/other/", ranks=ranks)
                self.assert_same(saved)
                self.assertGreater(len(second.requests), 0)
        # Also where the first cannot be had at all, and the other is a directory.
        trickling = self.serve(lambda request: Trickle() if "00002" in request.path else None)
        for model in ("http://127.0.0.1:9/model", f"{self.serve().url}/absent", "hf://no/model",
                      "http://name.invalid/model", f"{trickling.url}/model"):  # fmt: skip
            with self.subTest(model):
                self.enterContext(unittest.mock.patch.dict(os.environ, {"HF_ENDPOINT": "http://127.0.0.1:9"}))
                self.assert_loads(model, self.work / "saved", "--source", "http://name.invalid/", "--source", other)
                self.assert_same(self.work / "saved")

    def test_all_files_are_of_one_version(self):
        other = self.work / "other"
        shutil.copytree(self.model, other)
        for file in other.glob("*.safetensors"):
            file.write_bytes(file.read_bytes()[:-4] + b"\0\1\2\3")
        web = self.serve(lambda request: Answer(404) if "other/model-00003" in request.path else None)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                saved = self.work / f"saved-{ranks}"
                self.assert_loads(f"{web.url}/other", saved, "--source", f"{web.url}/model", ranks=ranks)
                self.assert_same(saved)

    def test_a_server_that_comes_back(self):
        port = free_port()
        first = WebServer(self.work, lambda request: Slow(0.05), port)
        first.__enter__()
        done = {}
        loading = threading.Thread(
            target=lambda: done.update(result=self.load(f"{first.url}/model", self.work / "saved")))  # fmt: skip
        loading.start()
        while len(first.requests) < 12:
            time.sleep(0.01)
        first.__exit__()
        time.sleep(0.5)
        self.serve(port=port)
        loading.join()
        self.assertEqual(done["result"].returncode, 0, done["result"].stderr)
        self.assert_same(self.work / "saved")


class Keeps(WebCase):
    """With --cache."""

    def setUp(self):
        super().setUp()
        self.cache = self.work / "cache"
        self.stored = sum(file.stat().st_size for file in self.model.iterdir())
        self.beginnings = 5 * (64 << 10)  # of each file, to know its version

    def load_kept(self, web, *options, ranks=1):
        return self.load(f"{web.url}/model", self.work / "saved", "--cache", self.cache, *options, ranks=ranks)

    def assert_kept(self, web, *options, ranks=1):
        web.requests.clear()
        result = self.load_kept(web, *options, ranks=ranks)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same(self.work / "saved")
        return result

    def unfinished(self):
        return [*self.cache.rglob("*.incomplete"), *self.cache.rglob("*.ranges"), *self.cache.rglob("*.new-*")]

    def test_the_second_start_only_asks_for_versions(self):
        web = self.serve()
        for ranks in (1, 2, 3):
            shutil.rmtree(self.cache, ignore_errors=True)
            self.assert_kept(web, ranks=ranks)
            self.assertEqual(self.unfinished(), [])
            self.assert_kept(web, ranks=ranks)
            self.assertLessEqual(self.asked_bytes(web), self.beginnings)

    def test_objects_with_the_same_tag(self):
        """As of a server that makes it of size and time."""
        web = self.serve(lambda request: Changed({"ETag": 'W/"the same"'}))
        for ranks in (1, 2):
            self.assert_kept(web, ranks=ranks)

    def test_another_version(self):
        web = self.serve()
        self.assert_kept(web)
        name = "model-00002-of-00003.safetensors"
        tensors = load_file(self.model / name)
        save_file({key: tensor + 1 for key, tensor in tensors.items()}, self.model / name)
        self.assert_loads(self.model, self.reference)
        self.assert_kept(web, ranks=2)
        self.assertGreater(self.asked_bytes(web), self.stored // 4)
        self.assertLess(self.asked_bytes(web), self.stored)
        self.assert_kept(web)
        self.assertLessEqual(self.asked_bytes(web), self.beginnings)

    def test_what_an_end_has_left(self):
        """An error, or the end of the process."""
        web = self.serve(within("00003", Answer(503), 4))
        self.assertEqual(self.load_kept(web, ranks=2).returncode, 3)
        noted = [line.split() for file in self.cache.rglob("*.ranges") for line in file.read_text().splitlines()]
        there = sum(int(end) - int(begin) for begin, end in noted)
        self.assertGreater(there, self.beginnings)
        web.fault = lambda request: None
        self.assert_kept(web, ranks=2)
        self.assertLess(self.asked_bytes(web), self.stored + self.beginnings - there // 2)
        shutil.rmtree(self.cache)
        web.fault = lambda request: Slow(0.1)
        words = ["load", f"{web.url}/model", *SMALL, "--cache", self.cache]
        with subprocess.Popen([os.environ["SAFESHUFFLE"], *map(str, words)], stdout=subprocess.DEVNULL) as process:
            while not list(self.cache.rglob("*.incomplete")):
                time.sleep(0.01)
            time.sleep(0.5)
            process.kill()
        web.fault = lambda request: None
        self.assert_kept(web)
        self.assert_kept(web)
        self.assertLessEqual(self.asked_bytes(web), self.beginnings)

    def test_a_note_without_its_file_is_void(self):
        web = self.serve(within("00003", Answer(503), 4))
        self.assertEqual(self.load_kept(web).returncode, 3)
        for file in self.cache.rglob("*.incomplete"):
            file.unlink()
        self.assertNotEqual(list(self.cache.rglob("*.ranges")), [])
        web.fault = lambda request: None
        self.assert_kept(web)
        self.assert_kept(web)
        self.assertEqual(self.unfinished(), [])

    def test_two_starts_at_once(self):
        web = self.serve(lambda request: Slow(0.05))
        results = []
        starts = [
            threading.Thread(
                target=lambda i=i: results.append(
                    self.load(f"{web.url}/model", self.work / f"saved-{i}", "--cache", self.cache, ranks=2)
                )
            )
            for i in range(2)
        ]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        self.assertEqual([result.returncode for result in results], [0, 0], results[0].stderr + results[1].stderr)
        for i in range(2):
            self.assert_same(self.work / f"saved-{i}")
        self.assert_kept(web)
        self.assertLessEqual(self.asked_bytes(web), self.beginnings)
        self.assertEqual(self.unfinished(), [])

    def test_a_limit(self):
        web = self.serve()
        largest = max(file.stat().st_size for file in self.model.iterdir())
        for limit in (largest + 100_000, largest - 1):
            for _ in range(2):
                self.assert_kept(web, "--cache-size", str(limit), ranks=2)
                kept = [file for file in self.cache.rglob("*") if file.is_file() and not file.is_symlink()]
                self.assertLessEqual(sum(file.stat().st_size for file in kept), limit)
                self.assertEqual([link for link in self.cache.rglob("*") if not link.exists()], [])
        self.assert_kept(web)
        (blobs,) = self.cache.rglob("blobs")
        for name, days in (("old", 2), ("new", 0)):
            incomplete = blobs / f"{name}.incomplete"
            incomplete.write_bytes(bytes(100_000))
            os.utime(incomplete, (time.time() - days * 86_400,) * 2)
        self.assert_kept(web, "--cache-size", str(sum(file.stat().st_size for file in blobs.iterdir()) - 150_000))
        self.assertEqual([file.name for file in self.unfinished()], ["new.incomplete"])
        self.assert_kept(web)
        self.assertLessEqual(self.asked_bytes(web), self.beginnings)

    def test_what_cannot_be_kept(self):
        self.cache.write_text("is no directory")
        result = self.assert_kept(self.serve(), ranks=2)
        self.assertIn("not all kept: ", result.stdout)
        self.cache.unlink()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        result = command.run("load", f"{self.serve().url}/model", *SMALL, "--cache", self.cache)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not all kept: ", result.stdout)
        shutil.rmtree(self.cache)
        # Versions that cannot be told apart are not kept.
        web = self.serve(lambda request: Changed({"ETag": None, "Last-Modified": None}))
        self.assert_kept(web)
        self.assertEqual([file for file in self.cache.rglob("*") if file.is_file()], [])


def within(name, fault, after=0):
    """The fault in all but the first requests for the data of the files whose names contain `name`."""
    seen = {"number": 0}

    def decide(request):
        if name not in request.path or not request.range or request.range[0] == 0:
            return None
        seen["number"] += 1
        return fault if seen["number"] > after else None

    return decide


def in_data(name, fault):
    """The fault in requests that are longer than those that compare files."""
    return lambda request: (
        fault if name in request.path and request.range and request.range[1] - request.range[0] >= 64 << 10 else None
    )


class Fails(WebCase):
    def assert_error(self, fault, *words, ranks=1):
        web = self.serve(fault)
        result = self.load(f"{web.url}/model", self.work / "saved", ranks=ranks)
        self.assert_fails(result, web.url, *words)
        return web

    def test_errors_name_the_url(self):
        second = "model-00002"
        cases = {
            "unavailable": (within(second, Answer(503)), second, "HTTP 503", "not available"),
            "forbidden": (within(second, Answer(403)), second, "HTTP 403"),
            "changed tag": (within(second, Changed({"ETag": '"other"'}), 3), second, "changed while it was read"),
            "precondition": (within(second, Answer(412)), second, "changed while it was read"),
            "shorter": (within(second, Answer(416)), second, "changed while it was read"),
            "short ranges": (
                within(second, Changed({"Content-Length": "0", "Connection": "close"})), second, "shorter than"
            ),
            "no ranges": (lambda request: WHOLE if "2-of" in request.path else None, second, "ranges"),
            "another range": (within(second, Changed({"Content-Range": "bytes 1-2/9"})), second, "another range"),
            "longer": (within(second, Changed({"Content-Length": "999999"}, b"x" * 999999)), second, "more than"),
            "compressed": (within(second, Changed({"Content-Encoding": "gzip"})), second, "gzip"),
            "missing": (lambda request: Answer(404) if "3-of" in request.path else None, "00003", "HTTP 404"),
            "a whole object as a range": (
                within(second, Changed({"Content-Length": "840000"}, b"x" * 840_000)),
                second,
                "more than",
            ),
            "local file": (within(second, Answer(302, {"Location": "file:///etc/passwd"})), "no web address"),
            "around": (within(second, Answer(302, {"Location": "/model/model-00002-of-00003.safetensors"})), "again"),
            "never whole": (within(second, Cut(0, reset=True)), second),
            "one byte in each answer": (within(second, Cut(1e-5)), second),
            "byte by byte": (lambda request: Trickle() if second in request.path else None, second, "timed out"),
            "for others": (lambda request: Answer(401), INDEX, "HTTP 401", "--header"),
        }
        for name, (fault, *words) in cases.items():
            with self.subTest(name):
                self.assert_error(fault, *words)

    def test_all_ranks_end_alike(self):
        for fault in (within("00003", Answer(503)), within("00001", Changed({"ETag": '"other"'}))):
            self.assert_error(fault, ranks=2)

    def test_other_sources(self):
        other = self.work / "other"
        shutil.copytree(self.model, other)
        name = "model-00002-of-00003.safetensors"
        content = bytearray((other / name).read_bytes())
        content[20:30] = b"x" * 10
        (other / name).write_bytes(content)
        for fault, words in ((in_data("model/model-00002", Answer(503)), ("HTTP 503", "another object")),
                             (in_data("model/model-00002", Changed({"ETag": '"other"'})), ("changed",))):  # fmt: skip
            web = self.serve(fault)
            result = self.load(f"{web.url}/model", self.work / "saved", "--source", f"{web.url}/other", ranks=2)
            self.assert_fails(result, f"{web.url}/model/{name}", *words)
        web = self.serve(lambda request: Answer(503) if request.path.startswith("model") else Answer(403))
        result = self.load(f"{web.url}/model", self.work / "saved", "--source", f"{web.url}/other", ranks=2)
        self.assert_fails(result, f"{web.url}/model", "HTTP 503", f"{web.url}/other", "HTTP 403")

    def test_the_error_of_one_ends_what_others_wait_for(self):
        web = self.serve(lambda request: within("00001", Answer(403))(request) or within("00002", Slow(25))(request))
        begin = time.monotonic()
        result = self.load(f"{web.url}/model", self.work / "saved", "--assign", "striped", ranks=2, timeout=100)
        self.assert_fails(result, "HTTP 403")
        self.assertLess(time.monotonic() - begin, 15)

    def test_nothing_is_written_to_urls(self):
        web = self.serve()
        model = f"{web.url}/model"
        for outputs in ([f"{web.url}/out"], [self.work / "saved", "--cache", "s3://bucket/cache"],
                        [self.work / "saved", "--report", "hf://org/report"]):  # fmt: skip
            self.assert_fails(self.load(model, *outputs), outputs[-1], "written to a URL", code=2)

    def test_nothing_there(self):
        web = self.serve()
        self.assert_fails(self.load(f"{web.url}/absent", self.work / "saved"), f"{web.url}/absent", INDEX)
        self.assert_fails(self.load("http://127.0.0.1:9/model", self.work / "saved"), "127.0.0.1:9")
        self.assert_fails(self.load("http://name.invalid/model", self.work / "saved"), "name.invalid")
        result = self.load("https://" + web.url.removeprefix("http://") + "/model", self.work / "saved")
        self.assert_fails(result, "https://")
        for secret in ("http://user:password@127.0.0.1:9/model", "http://127.0.0.1:9/model?signature=password"):
            result = self.load(secret, self.work / "saved")
            self.assert_fails(result, code=2)
            self.assertNotIn("password", result.stderr.replace("name and a password", ""))
        self.assert_fails(self.load(f"{web.url}/model", self.work / "saved", "--header", "a\nb"), "one line", code=2)


class Random(WebCase):
    def test_faults_in_some_requests(self):
        faults = [Answer(503), Answer(500), Answer(429, {"Retry-After": "0"}), Cut(0.3), Cut(0.7, reset=True),
                  Cut(0), Slow(0.2)]  # fmt: skip
        for seed in range(RUNS):
            dice = random.Random(seed)
            fault, share = dice.choice(faults), dice.choice([0.02, 0.05, 0.3])
            ranks = dice.choice([1, 1, 2, 3]) if RUNS < 100 or seed % 20 == 0 else 1
            with self.subTest(seed=seed, fault=fault, share=share, ranks=ranks):
                web = self.serve(sometimes(share, fault, seed))
                saved = self.work / "saved"
                result = self.load(f"{web.url}/model", saved, "--assign", dice.choice(["auto", "striped", "sliced"]),
                                   ranks=ranks)  # fmt: skip
                if result.returncode == 0:
                    self.assert_same(saved)
                else:
                    self.assert_fails(result, web.url)
                    self.assertGreater(share, 0.1)
                web.__exit__()

    def test_slow_requests_are_raced(self):
        web = self.serve(sometimes(1 / 8, Slow(5), seed=3))
        begin = time.monotonic()
        self.assert_loads(f"{web.url}/model", self.work / "saved")
        self.assert_same(self.work / "saved")
        self.assertLess(time.monotonic() - begin, 60)


if __name__ == "__main__":
    unittest.main()
