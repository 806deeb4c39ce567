"""What is kept of each run, and the figures of all runs of a case."""

from lib.figures import figures, outliers

PHASES = ("open", "plan", "allocate", "read", "h2d", "pack", "exchange", "wait")
OF_A_RANK = ("rank", "host", "total_seconds", "phases", "read_bytes", "sent_bytes", "received_bytes", "kept_bytes",
             "peak_resident_bytes", "cpu_seconds")
FIGURES = ("gigabytes_per_second", "seconds", "wall_seconds", "launch_seconds", "cpu_seconds", "peak_resident_bytes",
           "read_busy_seconds", *(f"{phase}_seconds" for phase in PHASES))
TAKEN = ("turn", "position", "outlier", "bytes", *FIGURES, "assignment", "io", "bottleneck")


def phase_seconds(ranks):
    """Averages over the ranks, so that they add up to the average total."""
    return {f"{phase}_seconds": sum(rank["phases"].get(phase, 0) for rank in ranks) / len(ranks) for phase in PHASES}


def sample(report, wall_seconds, case, turn, position):
    """Of a load report. What the command took in addition is to start and end its processes, and MPI."""
    ranks = report["ranks"]
    return {
        "case": case, "turn": turn, "position": position,
        "bytes": report["tensor_bytes"],
        "seconds": report["seconds"],
        "gigabytes_per_second": report["gigabytes_per_second"],
        "wall_seconds": wall_seconds,
        "launch_seconds": max(0.0, wall_seconds - report["seconds"]),
        "cpu_seconds": sum(rank["cpu_seconds"] for rank in ranks),
        "peak_resident_bytes": sum(rank["peak_resident_bytes"] for rank in ranks),
        "read_busy_seconds": max(rank["overlap"]["read_busy_seconds"] for rank in ranks),
        **phase_seconds(ranks),
        "assignment": report["assignment"],
        "io": ", ".join(sorted({rank["io"]["path"] for rank in ranks})),
        "bottleneck": report["bottleneck"]["phase"],
        "device": report["device"], "transport": report["transport"], "warnings": report["warnings"],
        "ranks": [{name: rank[name] for name in OF_A_RANK} for rank in ranks],
    }


def key(case):
    """A case as something that can be looked up."""
    return tuple(sorted(case.items()))


def case_key(sample):
    return key(sample["case"])


def by_case(samples, key_of=case_key):
    found = {}
    for one in samples:
        found.setdefault(key_of(one), []).append(one)
    return found


def with_outliers(samples, key_of=case_key):
    """Each sample with whether it is an outlier among those of its case, by its seconds."""
    marks = {}
    for group in by_case(samples, key_of).values():
        for one, mark in zip(group, outliers([one["seconds"] for one in group])):
            marks[id(one)] = mark
    return [one | {"outlier": marks[id(one)]} for one in samples]


def speed_ups(group, base):
    """How many times as fast a case was as another one, in each of the turns that both have."""
    theirs = {one["turn"]: one["gigabytes_per_second"] for one in base}
    return [one["gigabytes_per_second"] / theirs[one["turn"]] for one in group if one["turn"] in theirs]


def base_of(case, groups):
    """The samples of the same case with the fewest ranks."""
    alike = [group for group in groups.values()
             if group[0]["case"] | {"ranks": 0} == case | {"ranks": 0}]
    return min(alike, key=lambda group: group[0]["case"]["ranks"])


def summary(samples):
    """One entry per case."""
    groups = by_case(samples)
    entries = []
    for group in groups.values():
        case, base = group[0]["case"], base_of(group[0]["case"], groups)
        entry = {"case": case, "runs": len(group), "outliers": sum(one["outlier"] for one in group)}
        entry |= {name: figures([one[name] for one in group]) for name in FIGURES}
        entry |= {"bytes": group[0]["bytes"], "base_ranks": base[0]["case"]["ranks"],
                  "speed_up": figures(speed_ups(group, base)) if base is not group else None,
                  "bottleneck": most_frequent([one["bottleneck"] for one in group]),
                  "assignment": most_frequent([one["assignment"] for one in group]),
                  "io": most_frequent([one["io"] for one in group])}
        entries.append(entry)
    return entries


def most_frequent(values):
    return max(sorted(set(values)), key=values.count)


def in_order(entries, cases):
    """Of the summary, in the order of the experiment's cases: turns are shuffled."""
    places = {key(case): at for at, case in enumerate(cases)}
    return sorted(entries, key=lambda entry: places[key(entry["case"])])
