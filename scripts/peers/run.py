"""Loads a model with one of the libraries, each rank in a process of its own, and tells what that took.

usage: python3 -m peers.run JOB

JOB is JSON, as scripts/lib/measure/systems.py writes it. Once all ranks are ready to load, prints `ready` and waits
for a line; then they load. The result is written to a file that JOB names.
"""

import importlib
import json
import os
import pathlib
import sys
import time
import traceback

import torch

from lib import usage
from peers import shards
from peers.catalog import PEERS


class Rank:
    """One of the processes. They tell each other, and the first process, by pipes how far they are."""

    def __init__(self, job, rank, ready, go, leave):
        self.job, self.rank, self.ready, self.go, self.leave = job, rank, ready, go, leave
        self.peer = next(peer for peer in PEERS if peer.name == job["peer"])
        self.device = torch.device("cpu" if job["device"] == "cpu" else f"cuda:{rank}")

    def prepare(self):
        """All that a process does before it knows of a model."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
        else:
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self.job["ranks"]))
        if self.peer.needs_group and self.job["ranks"] > 1:
            self.join()

    def join(self):
        backend = "gloo" if self.device.type == "cpu" else "nccl"
        meeting = pathlib.Path(self.job["scratch"]) / "meeting"
        torch.distributed.init_process_group(backend, init_method=meeting.as_uri(), rank=self.rank,
                                             world_size=self.job["ranks"])
        torch.distributed.all_reduce(torch.zeros(1, device=self.device))  # connects all

    def run(self):
        driver = importlib.import_module(f"peers.{self.peer.driver}")
        placement = shards.placement_of(json.loads(pathlib.Path(self.job["placement"]).read_text()))
        self.prepare()
        os.write(self.ready, b".")
        os.read(self.go, 1)
        usage.forget_peak()
        before, read_before, cpu_before = usage.memory(), usage.read_bytes(), time.process_time()
        start = time.monotonic()
        tensors = driver.load(self.job["files"], placement, self.device, self.rank, **self.peer.options)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        end = time.monotonic()
        result = {
            "start": start,
            "end": end,
            "cpu_seconds": time.process_time() - cpu_before,
            "read_bytes": usage.read_bytes() - read_before,
            "resident_before_bytes": before["resident_bytes"],
            "peak_resident_bytes": usage.memory()["peak_resident_bytes"],
        }
        if self.job["digests"]:
            result["digests"] = {name: shards.digest(tensor) for name, tensor in tensors.items()}
        pathlib.Path(self.job["scratch"], f"rank-{self.rank}.json").write_text(json.dumps(result))
        os.write(self.ready, b".")
        os.read(self.leave, 1)  # all others have ended theirs: libraries close what they share


def start(job, rank, *pipes):
    """The new process's number. Forked, because importing torch takes seconds."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        Rank(job, rank, *pipes).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # not what libraries do at exit, which is no part of loading


def await_all(ready, processes, meanwhile=lambda: None):
    """Until each has said that it is that far. Ends all if one of them has failed."""
    os.set_blocking(ready, False)
    told = 0
    while told < len(processes):
        time.sleep(usage.INTERVAL_SECONDS)
        meanwhile()
        try:
            told += len(os.read(ready, len(processes) - told))
        except BlockingIOError:
            pass
        if any(usage.has_ended(process) for process in processes):
            end(processes)
            sys.exit("a rank failed")


def end(processes):
    for process in processes:
        os.kill(process, 9)
        os.waitpid(process, 0)


def collected(job, peaks):
    ranks = [json.loads(pathlib.Path(job["scratch"], f"rank-{rank}.json").read_text()) for rank in range(job["ranks"])]
    for rank, peak in zip(ranks, peaks):
        rank["peak_anonymous_bytes"] = peak
    return {"seconds": max(rank["end"] for rank in ranks) - min(rank["start"] for rank in ranks), "ranks": ranks}


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    ready, tell = os.pipe()
    go, release = os.pipe()
    leave, dismiss = os.pipe()
    processes = [start(job, rank, tell, go, leave) for rank in range(job["ranks"])]
    await_all(ready, processes)
    print("ready", flush=True)
    sys.stdin.readline()
    peaks = [usage.AnonymousPeak(process) for process in processes]
    os.write(release, b"." * job["ranks"])
    await_all(ready, processes, lambda: [peak.look() for peak in peaks])
    os.write(dismiss, b"." * job["ranks"])
    for process in processes:
        os.waitpid(process, 0)
    pathlib.Path(job["result"]).write_text(json.dumps(collected(job, [peak.bytes for peak in peaks])))


if __name__ == "__main__":
    main()
