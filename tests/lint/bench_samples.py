"""Experiments, samples and results for tests of what is made of them. The scripts must be in the module path."""

from lib.experiments import experiment as experiments
from lib.experiments import samples

DEFINITION = {
    "schema_version": 1,
    "title": "Title",
    "question": "Which is faster?",
    "models": [{"name": "small", "like": "llama-2-70b", "scale": 0.01}],
    "ranks": [1, 2],
    "cache": ["cold", "warm"],
    "load": {"dtype": ["keep", None], "chunk": ["1MiB"]},
    "turns": 3,
    "ceilings": ["fio"],
    "plots": [{"kind": "lines", "title": "Rates", "x": "ranks", "series": "dtype"}],
    "quick": {"turns": 1},
}


def checked(definition=None, quick=False):
    return experiments.check("e.json", "e", definition or DEFINITION, quick)


def report(seconds, ranks):
    size = 10**9
    phases = dict.fromkeys((*samples.PHASES, "verify"), 0.0) | {"read": 0.75 * seconds, "pack": 0.25 * seconds}
    rank = {"host": "h", "total_seconds": seconds, "phases": phases, "read_bytes": size // ranks, "sent_bytes": 0,
            "received_bytes": 0, "kept_bytes": size // ranks, "peak_resident_bytes": 10**8, "cpu_seconds": 0.5,
            "overlap": {"read_busy_seconds": 0.1}, "io": {"path": "posix direct"}}
    return {"tensor_bytes": size, "seconds": seconds, "gigabytes_per_second": size / seconds / 1e9,
            "assignment": "sliced", "bottleneck": {"phase": "read"}, "device": "host", "transport": "mpi",
            "warnings": [], "ranks": [rank | {"rank": number} for number in range(ranks)]}


def case(**changes):
    return {"model": "small", "ranks": 1, "cache": "cold", "dtype": "keep", "chunk": "1MiB"} | changes


def sample(seconds, turn, **changes):
    of = case(**changes)
    return samples.sample(report(seconds, of["ranks"]), seconds + 0.4, of, turn, 0)


def result_of(some, ceilings=()):
    marked = samples.with_outliers(some)
    machine = {"cpu": "CPU <x>", "cores": 2, "memory_bytes": 8e9, "kernel": "6", "filesystem": "ext4",
               "filesystem_device": "/dev/x", "gpus": []}
    identity = {"experiment": {"name": "e", "definition": checked().definition}, "commit": "abc",
                "version": "1.2", "command_sha256": "0", "machine": machine,
                "launcher": {"name": "mpirun", "version": "4"}}
    return {"schema_version": 1, "begun": "2026-01-01T00:00:00Z", "date": "2026-01-01T00:01:00Z",
            "identity": identity, "models": [{"name": "small", "files": 3, "bytes": 10**9, "file_bytes": 10**9}],
            "ceilings": list(ceilings), "not_run": [{"what": "warm, 2 ranks", "reason": "no <memory>"}],
            "samples": marked, "summary": samples.summary(marked), "timelines": []}


FIO = {"system": "fio", "case": {"model": "small", "ranks": 2, "cache": "cold"}, "turn": 0, "seconds": 0.25,
       "bytes": 10**9, "gigabytes_per_second": 4.0, "note": "bs=1m"}
