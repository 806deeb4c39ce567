"""Functions run by the ranks of a group, processes that gather bytes through their parent."""

import multiprocessing
import traceback


class PipeGroup:
    """A group for safeshuffle, of no framework."""

    def __init__(self, rank, size, pipe):
        self.rank, self.size = rank, size
        self._pipe = pipe

    def all_gather(self, data, timeout):
        self._pipe.send(("gather", data))
        if not self._pipe.poll(timeout):
            raise TimeoutError("the others did not come")
        return self._pipe.recv()


def run_ranks(size, function, *arguments, method="fork"):
    """What `function(group, *arguments)` returns on each rank. `method`: how processes are started."""
    context = multiprocessing.get_context(method)
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(rank, size, theirs, function, arguments), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    results = [None] * size
    running = set(range(size))
    while running:
        messages = {rank: pipes[rank].recv() for rank in sorted(running)}
        for rank, (kind, value) in messages.items():
            if kind == "failed":
                raise AssertionError(f"rank {rank}:\n{value}")
            if kind == "returned":
                results[rank] = value
                running.discard(rank)
        if running:
            gathered = [messages[rank][1] for rank in sorted(running)]
            for rank in running:
                pipes[rank].send(gathered)
    for process in processes:
        process.join(30)
    return results


def _run(rank, size, pipe, function, arguments):
    try:
        pipe.send(("returned", function(PipeGroup(rank, size, pipe), *arguments)))
    except BaseException:  # noqa: BLE001
        pipe.send(("failed", traceback.format_exc()))
