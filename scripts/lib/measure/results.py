"""What came of a measurement: figures of the samples, a table, files."""

import csv
import datetime
import io
import json
import pathlib
import shutil
import statistics
import subprocess

from lib import safeshuffle
from lib.measure import plot
from lib.measure.measurement import varying
from lib.measure.systems import PHASES

SCHEMA_VERSION = 2
NAME = "results.json"
FIGURES = ("gigabytes_per_second", "seconds", "cpu_seconds", "peak_resident_bytes",
           "peak_anonymous_bytes", "resident_before_bytes", "read_bytes", "peak_gpu_bytes",
           *(f"{phase}_seconds" for phase in PHASES))
COLUMNS = {  # of the table, besides the axes: the figure, digits and unit
    "seconds": ("seconds", 3, 1),
    "CPU s": ("cpu_seconds", 2, 1),
    "resident, GB": ("peak_resident_bytes", 2, 1e9),
    "anonymous, GB": ("peak_anonymous_bytes", 2, 1e9),
    "before, GB": ("resident_before_bytes", 2, 1e9),
    "from disk, GB": ("read_bytes", 2, 1e9),
    "GPU, GB": ("peak_gpu_bytes", 2, 1e9),
}
UNKNOWN = "–"


class Exists(Exception):
    """There are results that would be replaced."""


def figures(values):
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "least": min(known), "most": max(known)}


def shown(value, digits=2):
    """Median, and the spread if there is one."""
    if value is None:
        return UNKNOWN
    median, least, most = (f"{value[name]:.{digits}f}" for name in ("median", "least", "most"))
    return median if value["least"] == value["most"] else f"{median} ({least}–{most})"


def median(value, digits, unit):
    return UNKNOWN if value is None else f"{value['median'] / unit:.{digits}f}"


def by_case(samples):
    """Lists of samples."""
    found = {}
    for sample in samples:
        found.setdefault(tuple(sample["case"].items()), []).append(sample)
    return found


def rates(samples):
    return {sample["turn"]: sample["gigabytes_per_second"] for sample in samples}


def ratios(samples, base, ratio):
    """`ratio` of both rates, in each of the turns that both have."""
    ours, theirs = rates(samples), rates(base)
    return [ratio(ours[turn], theirs[turn]) for turn in sorted(ours.keys() & theirs.keys())]


def most_frequent(values):
    return max(sorted(set(values)), key=values.count)


def summary(samples, cases, base_of, ratio):
    """One entry for each case that ran, in the order of `cases`. `base_of(case)`: the one that it is compared with."""
    groups = by_case(samples)
    entries = []
    for case in cases:
        group, base = groups.get(tuple(case.items())), groups.get(tuple(base_of(case).items()))
        if not group:
            continue
        compared = ratios(group, base, ratio) if base and base is not group else []
        bottlenecks = [sample["bottleneck"] for sample in group if sample.get("bottleneck")]
        entries.append({"case": case, "runs": len(group), "bytes": group[0]["bytes"], "ratio": figures(compared),
                        **{name: figures([sample.get(name) for sample in group]) for name in FIGURES},
                        "bottleneck": most_frequent(bottlenecks) if bottlenecks else None})
    return entries


def row_of(entry, axes):
    case = [entry["case"].get(axis, UNKNOWN) for axis in axes]
    return [*("default" if value is None else str(value) for value in case),
            shown(entry["gigabytes_per_second"]), shown(entry["ratio"]),
            *(median(entry[name], digits, unit) for name, digits, unit in COLUMNS.values()),
            entry["bottleneck"] or UNKNOWN]


def table(entries, ratio_heading):
    """In Markdown, without columns in which nothing is known."""
    axes = varying([entry["case"] for entry in entries])
    headings = [*axes, "GB/s", ratio_heading, *COLUMNS, "bound by"]
    rows = [row_of(entry, axes) for entry in entries]
    kept = [at for at in range(len(headings)) if any(row[at] != UNKNOWN for row in rows)]
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line[at] for at in kept) + " |" for line in lines)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit():
    """The one that is checked out, and whether there are changes besides."""
    if not (safeshuffle.ROOT / ".git").exists() or not shutil.which("git"):
        return "unknown"  # installed, or not a clone
    described = subprocess.run(["git", "-C", safeshuffle.ROOT, "describe", "--always", "--abbrev=40", "--exclude=*",
                                "--dirty= with changes"], capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


def result(title, measured, systems, cases, base_of, ratio, ratio_heading, **further):
    """Of a measurement; `cases` in the order of the table."""
    return {"schema_version": SCHEMA_VERSION, "title": title, "date": now(), "commit": commit(), **further,
            "systems": [{"name": one.name, "versions": one.versions(), "settings": one.settings} for one in systems],
            "not_run": measured.not_run, "ratio": ratio_heading, "samples": measured.samples,
            "summary": summary(measured.samples, cases, base_of, ratio)}


def system_line(system):
    versions = ", ".join(f"{name} {version}" for name, version in system["versions"].items())
    return f"- **{system['name']}**{f' ({versions})' if versions else ''}: {system['settings']}"


def markdown(found):
    machine = found["machine"]
    sizes = "; ".join(f"{model['name']}: {model['bytes'] / 1e9:.2f} GB in {model['files']} files"
                      for model in found["models"])
    blocks = [f"**{found['title']}**",
              f"{sizes}. {machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.1f} GB of memory, "
              f"Linux {machine['kernel']}, {machine['filesystem']}, GPUs: {len(machine['gpus'])}. Commit "
              f"{found['commit']}. Median (least–most).",
              table(found["summary"], found["ratio"]) if found["summary"] else "Nothing was measured."]
    blocks.append("\n".join(map(system_line, found["systems"])))
    if found["not_run"]:
        entries = [f"- **{entry['what']}**: {entry['reason']}" for entry in found["not_run"]]
        blocks += ["Not run:", "\n".join(entries)]
    return "\n\n".join(blocks) + "\n"


def csv_text(samples):
    """One line per sample."""
    flat = [sample["case"] | {name: value for name, value in sample.items() if name != "case"} for sample in samples]
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for row in flat for name in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def check(directory, fresh):
    if (pathlib.Path(directory) / NAME).exists() and not fresh:
        raise Exists(f"{pathlib.Path(directory) / NAME} has results: use another --out, or --fresh to replace them")


def remove(directory):
    """Before anything is measured: no earlier result is to be beside those that replace it."""
    for name in (NAME, "results.csv", "summary.md", plot.NAME):
        (pathlib.Path(directory) / name).unlink(missing_ok=True)


def write(found, directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / NAME).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (directory / "results.csv").write_text(csv_text(found["samples"]), encoding="utf-8")
    (directory / "summary.md").write_text(markdown(found), encoding="utf-8")


def measure(experiment, directory, plots, announce):
    """Calls its `measure`, and writes and prints its `result`."""
    remove(directory)
    try:
        experiment.measure()
    finally:  # also what was measured until an error, or a signal
        found = experiment.result()
        write(found, directory)
    obstacle = plot.draw_result(found, directory / plot.NAME) if plots else "it was not asked for"
    announce(f"{directory}{f': no plot: {obstacle}' if obstacle else ''}")
    print(markdown(found))
