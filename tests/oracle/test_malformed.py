"""Malformed files: every rank ends with exit code 4, and one message names file and reason. Oddities
that the format allows are not refused."""

import json
import random
import re
import struct
import tempfile
import unittest
from pathlib import Path

import safetensors

import command

GOOD = b'{"%s":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
FORMAT_ERROR = 4


def file(header, data=b"\0" * 4, length=None):
    """A file whose stated header length may differ from the header's."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def one(entry, data=b"\0" * 4):
    """A file with a tensor `t`, given by the inside of its entry."""
    return file(b'{"t":{' + entry + b"}}", data)


def two(first, second, data):
    """A file with two U8 tensors at the given offsets."""
    entries = [
        b'"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}' % (name, end - begin, begin, end)
        for name, (begin, end) in ((b"a", first), (b"b", second))
    ]
    return file(b"{" + b",".join(entries) + b"}", data)


FIELDS = b'"dtype":"U8","shape":[4],"data_offsets":[0,4]'
TENSOR = b'"t":{' + FIELDS + b"}"

# Case: (bytes of the file, what the message must say).
MALFORMED = {
    "empty file": (b"", "header length"),
    "7 bytes": (b"\x02" + b"\0" * 6, "header length"),
    "length 0": (file(b"", b""), "length is 0"),
    "length above the limit": (file(b"{}", length=100_000_001), "limit"),
    "length past the end": (file(b"{}", b"", length=3), "past the end"),
    "length 2^63": (file(b"{}", length=2**63), "limit"),
    "length 2^64 - 1": (file(b"{}", length=2**64 - 1), "limit"),
    "starts with a space": (file(b" {" + TENSOR + b"}"), "begin with '{'"),
    "starts with a bracket": (file(b"[]", b""), "begin with '{'"),
    "invalid UTF-8": (file(b'{"\xff":{' + FIELDS + b"}}"), "UTF-8"),
    "cut JSON": (file(b"{" + TENSOR), "JSON"),
    "bytes after the brace": (file(b"{" + TENSOR + b"}x"), "JSON"),
    "NUL after the brace": (file(b"{" + TENSOR + b"}\0"), "JSON"),
    "deep nesting": (file(b'{"t":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "deep|not an object"),
    "duplicate tensor": (file(b"{" + TENSOR + b"," + TENSOR + b"}"), "twice"),
    "duplicate field": (one(b'"dtype":"U8",' + FIELDS), "twice"),
    "duplicate metadata key": (
        file(b'{"__metadata__":{"a":"1","a":"2"},' + TENSOR + b"}"), "twice"),
    "metadata not strings": (file(b'{"__metadata__":{"a":1},' + TENSOR + b"}"), "strings"),
    "metadata a list": (file(b'{"__metadata__":[],' + TENSOR + b"}"), "strings"),
    "entry a number": (file(b'{"t":1}', b""), "not an object"),
    "unknown field": (one(FIELDS + b',"extra":1'), "unknown field"),
    "no dtype": (one(b'"shape":[4],"data_offsets":[0,4]'), "missing"),
    "no shape": (one(b'"dtype":"U8","data_offsets":[0,4]'), "missing"),
    "no offsets": (one(b'"dtype":"U8","shape":[4]'), "missing"),
    "unknown dtype": (one(b'"dtype":"U7","shape":[4],"data_offsets":[0,4]'), "unknown dtype"),
    "dtype a number": (one(b'"dtype":8,"shape":[4],"data_offsets":[0,4]'), "dtype"),
    "negative shape": (one(b'"dtype":"U8","shape":[-4],"data_offsets":[0,4]'), "shape"),
    "fractional shape": (one(b'"dtype":"U8","shape":[4.0],"data_offsets":[0,4]'), "shape"),
    "shape beyond 64 bits": (
        one(b'"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]'), "shape"),
    "overflowing shape": (
        one(b'"dtype":"U8","shape":[4294967296,4294967296,4],"data_offsets":[0,4]'), "overflow"),
    "overflowing bits": (
        one(b'"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,4]'), "overflow"),
    "half a byte": (one(b'"dtype":"F4","shape":[3],"data_offsets":[0,2]', b"\0" * 2), "whole bytes"),
    "one offset": (one(b'"dtype":"U8","shape":[4],"data_offsets":[4]'), "data_offsets"),
    "three offsets": (one(b'"dtype":"U8","shape":[4],"data_offsets":[0,4,4]'), "data_offsets"),
    "negative offset": (one(b'"dtype":"U8","shape":[4],"data_offsets":[-4,0]'), "data_offsets"),
    "begin after end": (one(b'"dtype":"U8","shape":[4],"data_offsets":[4,0]'), "begin"),
    "bytes differ from shape": (one(b'"dtype":"U8","shape":[3],"data_offsets":[0,4]'), "span"),
    "gap": (two((0, 4), (5, 9), b"\0" * 9), "begins at"),
    "gap at the start": (two((1, 4), (4, 8), b"\0" * 8), "begins at"),
    "overlap": (two((0, 4), (3, 7), b"\0" * 7), "begins at"),
    "payload truncated": (one(FIELDS, b"\0" * 3), "ends here|before the end"),
    "bytes after the last tensor": (one(FIELDS, b"\0" * 5), "after the last"),
}  # fmt: skip

# Where the reference library is more lenient. Its README forbids the first two all the same.
LENIENT = {"starts with a space", "duplicate tensor", "duplicate metadata key", "unknown field"}

ALLOWED = {
    "trailing spaces": file(b"{" + TENSOR + b"}   "),
    "empty metadata": file(b'{"__metadata__":{},' + TENSOR + b"}"),
    "null metadata": file(b'{"__metadata__":null,' + TENSOR + b"}"),
    "no tensors": file(b"{}", b""),
    "only metadata": file(b'{"__metadata__":{"a":"b"}}', b""),
    "empty tensor": one(b'"dtype":"F32","shape":[0,5],"data_offsets":[0,0]', b""),
    "scalar": one(b'"dtype":"F32","shape":[],"data_offsets":[0,4]'),
    "entries out of order": two((4, 8), (0, 4), b"\0" * 8),
    "escaped name": file(b'{"\\u00e9\\"":{' + FIELDS + b"}}"),
}



# Launches in which the launcher, too, sees that ranks fail: it then kills those that are left, so that
# their codes are lost, but the message must not be.
SEEN_BY_LAUNCHER = 8


class Files(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.work = Path(directory.name)

    def write(self, case, content):
        """A checkpoint of three files, the middle one with `content`; rank 1 of 3 reads it. Returns
        the path of that file."""
        model = self.work / case
        model.mkdir()
        for index in (1, 3):
            good = file(GOOD % (b"good.%d" % index))
            (model / f"model-0000{index}-of-00003.safetensors").write_bytes(good)
        path = model / "model-00002-of-00003.safetensors"
        path.write_bytes(content)
        return path


class Malformed(Files):
    def setUp(self):
        super().setUp()
        self.paths = [self.write(case, content) for case, (content, _) in MALFORMED.items()]

    def assert_refused(self, results, codes):
        for (case, (_, reason)), path, result in zip(MALFORMED.items(), self.paths, results):
            with self.subTest(case):
                self.assertEqual(codes(result), {FORMAT_ERROR}, result.stdout + result.stderr)
                lines = [line for line in result.stderr.splitlines() if path.name in line]
                self.assertEqual(len(lines), 1, result.stderr)
                self.assertEqual(lines[0].count(path.name), 1, result.stderr)
                self.assertRegex(lines[0], reason)

    def test_load(self):
        def load(path):
            return command.run_ranks_to_the_end(3, "load", path.parent, "--tp-plan", "replicate")

        self.assert_refused(command.for_each(load, self.paths), command.exit_codes)

    def test_load_seen_by_launcher(self):
        def load(path):
            return command.run_ranks(3, "load", path.parent, "--tp-plan", "replicate")

        self.assert_refused(
            command.for_each(load, self.paths[:SEEN_BY_LAUNCHER]), lambda result: {result.returncode}
        )

    def test_inspect(self):
        results = command.for_each(lambda path: command.run("inspect", path), self.paths)
        self.assert_refused(results, lambda result: {result.returncode})

    def test_the_reference_library_refuses_them_too(self):
        for case, (content, _) in MALFORMED.items():
            if case in LENIENT:
                continue
            with self.subTest(case), self.assertRaises(safetensors.SafetensorError):
                safetensors.deserialize(content)


class Allowed(Files):
    def test_load(self):
        def load(case):
            path = self.write(case[0], case[1])
            return command.run_ranks(
                3, "load", path.parent, "--tp-plan", "replicate", "--verify", "full"
            )

        for case, result in zip(ALLOWED, command.for_each(load, ALLOWED.items())):
            with self.subTest(case):
                safetensors.deserialize(ALLOWED[case])
                self.assertEqual(result.returncode, 0, result.stderr)


class Mutated(Files):
    """Headers with small random damage: what the reference library refuses is refused, and what it
    accepts is read as it reads it, or refused as one of the things that are not so by its README."""

    COUNT = 2000
    DATA = bytes(36)
    HEADER = (
        b'{"__metadata__":{"format":"pt"},'
        b'"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
        b'"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},'
        b'"c":{"dtype":"BF16","shape":[0,5],"data_offsets":[28,28]},'
        b'"d":{"dtype":"I64","shape":[],"data_offsets":[28,36]}}'
    )
    TOKENS = [
        b"{", b"}", b"[", b"]", b",", b":", b'"', b"0", b"-1", b"1e2", b"1.0", b"null", b"true", b" ",
        b"\n", b"\0", b"\\u0000", b"\\ud800", b"\xff", b"\xc3\xa9", b'"a"', b"F4", b"4294967296",
        b"18446744073709551615", b"9999999999999999999999",
    ]  # fmt: skip
    STRICTER = "twice|unknown field|begin with '{'"

    def test_mutated(self):
        rng = random.Random(40)
        contents = [file(self.mutate(rng), self.DATA) for _ in range(self.COUNT)]
        results = command.for_each(self.inspect, enumerate(contents))
        accepted = 0
        for content, result in zip(contents, results):
            with self.subTest(content):
                accepted += self.compare(content, result)
        self.assertGreater(accepted, self.COUNT // 50)

    def inspect(self, numbered):
        path = self.work / f"{numbered[0]}.safetensors"
        path.write_bytes(numbered[1])
        return command.run("inspect", path, "--json")

    def compare(self, content, result):
        """Returns whether both accept the file."""
        self.assertIn(result.returncode, (0, FORMAT_ERROR), result.stderr)
        try:
            reference = safetensors.deserialize(content)
        except safetensors.SafetensorError:
            self.assertEqual(result.returncode, FORMAT_ERROR)
            return False
        if result.returncode == FORMAT_ERROR:
            self.assertRegex(result.stderr, self.STRICTER)
            return False
        tensors = json.loads(result.stdout)["files"][0]["tensors"]
        self.assertEqual(
            sorted((t["name"], t["dtype"], t["shape"]) for t in tensors),
            sorted((name, view["dtype"], list(view["shape"])) for name, view in reference),
        )
        return True

    def mutate(self, rng):
        header = bytearray(self.HEADER)
        at = rng.randrange(len(header))
        kind = rng.randrange(5)
        if kind == 0:
            header[at] = rng.randrange(256)
        elif kind == 1:
            header[at:at] = rng.choice(self.TOKENS)
        elif kind == 2:
            del header[at : at + rng.randrange(1, 6)]
        elif kind == 3:
            header[at:at] = header[rng.randrange(len(header)) :][: rng.randrange(1, 40)]
        else:
            number = rng.choice(list(re.finditer(rb"\d+", header)))
            header[number.start() : number.end()] = rng.choice(self.TOKENS)
        return bytes(header)


if __name__ == "__main__":
    unittest.main()
