"""What came of a comparison: samples, figures, files, tables."""

import csv
import io

from lib.experiments import outputs
from lib.experiments import samples as experiment_samples
from lib.figures import figures, median, shown

SCHEMA_VERSION = 1
CASE = ("dtype", "cache", "ranks", "turn", "position", "system")
TAKEN = ("seconds", "bytes", "gigabytes_per_second", "cpu_seconds", "peak_resident_bytes",
         "peak_resident_bytes_of_one_rank", "peak_anonymous_bytes", "resident_before_bytes", "read_bytes",
         "peak_gpu_bytes", "note")
COLUMNS = CASE + ("outlier",) + TAKEN
FIGURES = tuple(name for name in TAKEN if name not in ("bytes", "note"))
HEADINGS = ("", "GB/s", "{} ÷ it", "seconds", "CPU s", "resident, GB", "anonymous, GB", "before, GB", "from disk, GB",
            "GPU, GB")


def completed(taken, **case):
    """A sample with what it is of."""
    return case | taken | {"gigabytes_per_second": taken["bytes"] / taken["seconds"] / 1e9}


def with_outliers(samples):
    """Each sample with whether it is an outlier among those of its system and case."""
    return experiment_samples.with_outliers(
        samples, lambda one: tuple(one[name] for name in ("dtype", "cache", "ranks", "system")))


def groups(samples):
    """Samples by (dtype, cache, ranks), in order."""
    found = {}
    for sample in samples:
        found.setdefault((sample["dtype"], sample["cache"], sample["ranks"]), []).append(sample)
    return found


def rates(samples, system):
    """GB/s of the system, by turn."""
    return {sample["turn"]: sample["gigabytes_per_second"] for sample in samples if sample["system"] == system}


def ratios(samples, first, other):
    """How many times as fast as the other the first was, in each of the turns that both have."""
    ours, theirs = rates(samples, first), rates(samples, other)
    return [ours[turn] / theirs[turn] for turn in sorted(ours.keys() & theirs.keys())]


def summary(samples, systems):
    """One entry for each system of each group; the first of the systems is compared with all others."""
    entries = []
    for (dtype, cache, ranks), group in groups(samples).items():
        for system in systems:
            mine = [sample for sample in group if sample["system"] == system]
            if not mine:
                continue
            entry = {"dtype": dtype, "cache": cache, "ranks": ranks, "system": system, "runs": len(mine),
                     "outliers": sum(sample["outlier"] for sample in mine)}
            entry |= {name: figures([sample[name] for sample in mine]) for name in FIGURES}
            entry["times_as_fast"] = figures(ratios(group, systems[0], system)) if system != systems[0] else None
            entries.append(entry)
    return entries


def table_row(entry):
    return [
        entry["system"],
        shown(entry["gigabytes_per_second"]),
        shown(entry["times_as_fast"]),
        median(entry["seconds"], 3),
        median(entry["cpu_seconds"], 2),
        median(entry["peak_resident_bytes"], 2, 1e9),
        median(entry["peak_anonymous_bytes"], 2, 1e9),
        median(entry["resident_before_bytes"], 2, 1e9),
        median(entry["read_bytes"], 2, 1e9),
        median(entry["peak_gpu_bytes"], 2, 1e9),
    ]


def table(rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def load_title(dtype, ranks):
    return f"{ranks} rank{'s' if ranks > 1 else ''}, --dtype {dtype}"


def case_title(dtype, cache, ranks):
    return f"{cache}, {load_title(dtype, ranks)}"


def entries_of(result, group):
    """Of the summary, those of one dtype, cache state and number of ranks."""
    return [entry for entry in result["summary"] if (entry["dtype"], entry["cache"], entry["ranks"]) == group]


def model_line(result):
    return (f"{result['model']['bytes'] / 1e9:.2f} GB in {result['model']['files']} files; turns: "
            f"{result['options']['turns']}; median (least–most).")


def markdown(result):
    """The summary for people."""
    first = result["systems"][0]["name"]
    blocks = [f"{model_line(result)} {machine_line(result['machine'])}. Commit {result['commit']}."]
    headings = [heading.format(first) for heading in HEADINGS]
    for group in groups(result["samples"]):
        rows = [headings, ["---"] * len(headings), *map(table_row, entries_of(result, group))]
        blocks.append(f"**{case_title(*group)}**\n\n{table(rows)}")
    blocks.append(systems_list(result["systems"]))
    if result["not_run"]:
        blocks.append("Not run:\n\n" + "\n".join(not_run_line(entry) for entry in result["not_run"]))
    blocks.append(proof_line(result["proofs"]))
    return "\n\n".join(blocks) + "\n"


def machine_line(machine):
    return (f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.1f} GB of memory, Linux "
            f"{machine['kernel']}, {machine['filesystem']}, GPUs: {len(machine['gpus'])}")


def versions_of(system):
    versions = ", ".join(f"{name} {version}" for name, version in system["versions"].items())
    return f" ({versions})" if versions else ""


def systems_list(systems):
    return "\n".join(f"- **{system['name']}**{versions_of(system)}: {system['settings']}" for system in systems)


def sample_cell(value):
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def sample_row(sample):
    return [sample_cell(sample[name]) if name != "outlier" else "outlier" if sample[name] else "" for name in COLUMNS]


def case_of(entry):
    """Of what was not run; empty if it was not run at all."""
    return f" ({entry['case']})" if entry["case"] else ""


def not_run_line(entry):
    return f"- **{entry['system']}**{case_of(entry)}: {entry['reason']}"


def proof_line(proofs):
    return (f"Before measuring, every tensor of every rank was compared with safeshuffle's, by dtype, shape and a hash "
            f"of its bytes: {sum(proof['tensors'] for proof in proofs)} tensors in "
            f"{len(proofs)} load{'s' if len(proofs) != 1 else ''}, no difference.")


def csv_text(samples):
    """One line per sample."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(samples)
    return text.getvalue()


def write(result, directory):
    directory.mkdir(parents=True, exist_ok=True)
    outputs.write_text(directory / outputs.NAME, outputs.text_of(result))
    outputs.write_text(directory / "results.csv", csv_text(result["samples"]))
    outputs.write_text(directory / "summary.md", markdown(result))
