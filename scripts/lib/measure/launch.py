"""How ranks are started: by mpirun on this machine or on the nodes of a hostfile, or by srun in a Slurm allocation."""

import os
import pathlib
import re
import shutil

from lib import machine, page_cache, safeshuffle

HOST_RANKS = 4  # that "auto" goes up to where neither GPUs nor tasks say how many


class Here(page_cache.Preparer):
    """mpirun on this machine."""

    name = "mpirun"

    def ranks(self, number):
        return safeshuffle.launcher(number)

    def slots(self):
        return len(machine.gpus()) or HOST_RANKS


class Nodes:
    """Several nodes, or what the user calls so. Each makes the files cold or warm for itself, and keeps nothing so."""

    def prepare(self, files, state, dtype):
        safeshuffle.run([*self.each_node(), *safeshuffle.program("lib.page_cache", state, dtype, *files)])

    def release(self):
        pass


class Hostfile(Nodes):
    name = "mpirun --hostfile"

    def __init__(self, path):
        self.path = pathlib.Path(path).absolute()

    def ranks(self, number):
        return ["mpirun", "--hostfile", str(self.path), "--bind-to", "none", "-np", str(number)]

    def each_node(self):
        return ["mpirun", "--hostfile", str(self.path), "--bind-to", "none", "--map-by", "ppr:1:node"]

    def slots(self):
        return slots_of(self.path.read_text(encoding="utf-8"))


class Slurm(Nodes):
    name = "srun"

    def __init__(self, variables=os.environ):
        self.nodes = int(variables.get("SLURM_JOB_NUM_NODES") or variables.get("SLURM_NNODES") or 1)
        per_node = int(variables.get("SLURM_NTASKS_PER_NODE") or 0)  # some set only what the job asked for
        self.tasks = int(variables.get("SLURM_NTASKS") or self.nodes * per_node)
        self.mpi = [] if variables.get("SLURM_MPI_TYPE") else ["--mpi=pmix"]

    def ranks(self, number):
        return ["srun", *self.mpi, "--overlap", "--cpu-bind=none", f"--nodes={self.nodes_for(number)}",
                f"--ntasks={number}"]

    def nodes_for(self, number):
        """One node after the other is filled, as mpirun does it."""
        per_node = -(-self.slots() // self.nodes)
        return min(self.nodes, -(-number // per_node))

    def each_node(self):
        return ["srun", "--overlap", "--cpu-bind=none", f"--nodes={self.nodes}", f"--ntasks={self.nodes}",
                "--ntasks-per-node=1"]

    def slots(self):
        return self.tasks or max(HOST_RANKS, self.nodes)


def slots_of(hostfile):
    """Of all lines; one without a number has one, as Open MPI has it if it knows no better."""
    lines = [line.split("#", 1)[0].strip() for line in hostfile.splitlines()]
    found = [re.search(r"\bslots\s*=\s*(\d+)", line) for line in lines if line]
    return sum(int(slots.group(1)) if slots else 1 for slots in found)


def chosen(hostfile):
    if hostfile:
        return Hostfile(hostfile)
    if os.environ.get("SLURM_JOB_ID") and shutil.which("srun"):
        return Slurm()
    return Here()


def up_to(slots):
    """Powers of two."""
    return tuple(1 << bit for bit in range(slots.bit_length()) if 1 << bit <= slots)
