"""What each rank does when in one load, from its trace (docs/report.md)."""

import json

PHASE_ROW = 0
STREAM_ROW = 5
MOST_SPANS = 20000  # of one timeline: more cannot be seen, and would make the files large


def spans(trace):
    """By rank, of the loading thread and of what reads or copies meanwhile: name, begin, seconds."""
    found = {}
    for event in trace["traceEvents"]:
        if event.get("ph") != "X" or event["tid"] == STREAM_ROW:
            continue
        row = "phases" if event["tid"] == PHASE_ROW else "reading"
        ranks = found.setdefault(event["pid"], {"phases": [], "reading": []})
        ranks[row].append([event["name"], event["ts"] / 1e6, event["dur"] / 1e6])
    return [{"rank": rank, **{row: joined(sorted(parts, key=lambda part: part[1])) for row, parts in rows.items()}}
            for rank, rows in sorted(found.items())]


def joined(parts):
    """Neighbours of the same name as one."""
    result = []
    for name, begin, seconds in parts:
        if result and result[-1][0] == name and begin - (result[-1][1] + result[-1][2]) < 1e-6:
            result[-1][2] = begin + seconds - result[-1][1]
        else:
            result.append([name, begin, seconds])
    return result


def read(path, case):
    with open(path, encoding="utf-8") as file:
        ranks = spans(json.load(file))
    most = MOST_SPANS // max(1, len(ranks))
    for rank in ranks:
        rank["reading"] = [part[1:] for part in rank["reading"][:most]]
        rank["phases"] = rank["phases"][:most]
    return {"case": case, "ranks": ranks}
