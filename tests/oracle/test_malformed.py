"""Malformed files: every rank ends with exit code 4, and one message names file and reason. Oddities
that the format allows are not refused."""

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


class Files(unittest.TestCase):
    def setUp(self):
        self.enterContext(directory := tempfile.TemporaryDirectory())
        self.model = Path(directory.name)

    def write(self, content):
        """A checkpoint of three files, the middle one with `content`; rank 1 of 3 reads it."""
        for index in (1, 3):
            good = file(GOOD % (b"good.%d" % index))
            (self.model / f"model-0000{index}-of-00003.safetensors").write_bytes(good)
        path = self.model / "model-00002-of-00003.safetensors"
        path.write_bytes(content)
        return path


class Malformed(Files):
    def assert_refused(self, result, path, reason):
        self.assertEqual(result.returncode, FORMAT_ERROR, result.stdout + result.stderr)
        lines = [line for line in result.stderr.splitlines() if path.name in line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertEqual(lines[0].count(path.name), 1, result.stderr)
        self.assertRegex(lines[0], reason)

    def test_load(self):
        for case, (content, reason) in MALFORMED.items():
            with self.subTest(case):
                path = self.write(content)
                result = command.run_ranks(3, "load", self.model, "--tp-plan", "replicate")
                self.assert_refused(result, path, reason)

    def test_inspect(self):
        for case, (content, reason) in MALFORMED.items():
            with self.subTest(case):
                path = self.write(content)
                self.assert_refused(command.run("inspect", path), path, reason)

    def test_the_reference_library_refuses_them_too(self):
        for case, (content, _) in MALFORMED.items():
            if case in LENIENT:
                continue
            with self.subTest(case), self.assertRaises(safetensors.SafetensorError):
                safetensors.deserialize(content)


class Allowed(Files):
    def test_load(self):
        for case, content in ALLOWED.items():
            with self.subTest(case):
                self.write(content)
                safetensors.deserialize(content)
                result = command.run_ranks(
                    3, "load", self.model, "--tp-plan", "replicate", "--verify", "full"
                )
                self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
