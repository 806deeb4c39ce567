"""A checkpoint of so many tensors that its index, which rank 0 alone parses, and its headers take
longer to parse, and it takes longer to plan, than the time-out: that is work, and no rank is lost
while it is done."""

import json
import unittest

import job
from case import FaultCase

RANKS = 2
FILES = 2
TENSORS_PER_FILE = 500_000
TIMEOUT_SECONDS = 2
PATIENT_SECONDS = 3  # where a rank is lost, none other must be taken for it


# By hand, for a JSON library takes as long as all the rest.
def header(file):
    """Of tensors of one byte each."""
    entry = '"layers.{}.experts.{}.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}}'
    entries = (entry.format(file, i, i, i + 1) for i in range(TENSORS_PER_FILE))
    text = ("{" + ",".join(entries) + "}").encode()
    return text + b" " * (-len(text) % 8)


def index():
    entries = (
        f'"layers.{file}.experts.{i}.weight":"{file_name(file)}"'
        for file in range(FILES)
        for i in range(TENSORS_PER_FILE)
    )
    return '{"weight_map":{' + ",".join(entries) + "}}"


def file_name(number):
    return f"model-{number:05}-of-{FILES:05}.safetensors"


class ManyTensors(FaultCase):
    def setUp(self):
        super().setUp()
        self.many = self.work / "many"
        self.many.mkdir()
        for file in range(FILES):
            text = header(file)
            data = len(text).to_bytes(8, "little") + text + bytes(TENSORS_PER_FILE)
            (self.many / file_name(file)).write_bytes(data)
        (self.many / "model.safetensors.index.json").write_text(index(), encoding="utf-8")

    def load_many(self, timeout, *options, faults=()):
        return job.run(
            RANKS, "load", self.many, "--tp-plan", "replicate", "--window", "16KiB",
            "--progress", "none", "--timeout", timeout, *options, faults=faults,
        )  # fmt: skip

    def test_is_loaded(self):
        report = self.work / "report.json"
        result = self.load_many(TIMEOUT_SECONDS, "--report", report)
        self.assertEqual(result.code, 0, result.errors)
        phases = json.loads(report.read_text())["ranks"][0]["phases"]
        if phases["open"] + phases["plan"] < TIMEOUT_SECONDS:
            self.skipTest("this machine needs less than the time-out for it")

    def test_stopped_in_the_middle(self):
        lost = 1
        stop = {"rank": lost, "call": "pread", "path": file_name(lost), "thread": "main",
                "from": 8, "times": 1, "action": "stop_later", "value": 500}  # fmt: skip
        result = self.load_many(PATIENT_SECONDS, faults=[stop])
        self.assert_fails(result, 9, f"rank {lost}: ", f"no answer within {PATIENT_SECONDS} s")


if __name__ == "__main__":
    unittest.main()
