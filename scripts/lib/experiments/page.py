"""One page about measurements, with everything inside, to send on."""

import base64
import html as markup
import json
import pathlib

from lib.experiments import experiment as experiments
from lib.experiments import findings, outputs, samples
from lib.figures import median, shown

STYLE = pathlib.Path(__file__).with_name("page.css")
PLOTS = "plots"
LEFT, RIGHT = "left", "right"
UNKNOWN = "–"
CAPTIONS = {
    "lines": "Dots are single runs, hollow ones outliers; the line joins medians, whose bars reach from the least to "
             "the most. Dashed: ideal scaling from the fewest ranks.",
    "bars": "Bars are medians, the thin lines reach from the least to the most, dots are single runs, hollow ones "
            "outliers.",
    "phases": "Median seconds that the loading thread of a rank spent in each phase, on average over the ranks. The "
              "number is the median of the whole, of the slowest rank: medians of parts need not add up to it.",
    "heatmap": "Median GB/s: the darker, the faster. A cell is framed if its slowest run was faster than the median of "
               "every other cell of the panel. Cells whose spreads, which the table has, overlap cannot be told apart.",
    "timeline": "Of three further runs with --trace, the one in the middle by seconds. Above: the phase that the "
                "loading thread of each rank is in. Below, in grey: times with reads in progress in other threads. In "
                "gaps outputs are prepared, which does not count. Clocks start when each rank starts to load.",
}
READING = """
<p><b>GB/s</b> is the bytes of the tensors that are stored, each counted once, by the seconds of the slowest rank, from
the call of the load to its return (10⁹ bytes). Figures are the median of all turns, with the least and the most.</p>
<p><b>Cold</b> runs begin with no page of the files in the page cache, <b>warm</b> ones with all: checked page by page
before each run, and a run that fails the check is not counted but listed. Other caches, such as that of a disk or of
the host of a virtual machine, may still hold what is cold here. Before each run, as much memory as two copies of the
model (three if it is loaded into f32) is written and given back, because the host of a virtual machine takes free
memory.</p>
<p><b>Turns</b>: in each turn every case runs once, in an order that differs from turn to turn. Speed-ups are
quotients of one turn, then their median: a disturbance that lasts longer than a turn falls on all cases alike.</p>
<p><b>Ceilings</b>: <i>fio</i> is the fastest of a few sequential direct reads of the same files, for cold runs;
for warm ones, by as many ranks, <i>memory-copy</i> is one copy of every byte into new memory, and <i>cached-read</i>
reading every byte from the page cache into new memory, as a load does. The highest of all turns counts; shares are of
the lower of the two.</p>
<p><b>Outliers</b> are further from the median of their case than 3.5 standard deviations, estimated from the median
absolute deviation, and than a tenth of the median; with fewer than five runs there are none. They are marked, and count
in all figures.</p>
"""


def escape(value):
    return markup.escape(str(value))


def cell(tag, text, align):
    return f'<{tag} class="{align}">{escape(text)}</{tag}>'


def table(headings, rows, classes=None):
    """`headings`: pairs of text and alignment. Columns in which nothing is known are left out."""
    kept = [at for at in range(len(headings)) if any(row[at] != UNKNOWN for row in rows)]
    headings, rows = [headings[at] for at in kept], [[row[at] for at in kept] for row in rows]
    head = "".join(cell("th", text, align) for text, align in headings)
    lines = []
    for at, row in enumerate(rows):
        mark = f' class="{classes[at]}"' if classes and classes[at] else ""
        lines.append(f"<tr{mark}>" + "".join(cell("td", text, align) for text, (_, align) in zip(row, headings))
                     + "</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def facts(pairs):
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f'<div class="wide"><table class="facts">{rows}</table></div>'


def shown_value(value):
    return "default" if value is None else value


def shown_share(share):
    return UNKNOWN if share is None else f"{share:.0%}"


def summary_table(result, experiment):
    axes = experiment.distinct()
    headings = [(axis, LEFT) for axis in axes] + [
        ("GB/s", RIGHT), ("seconds", RIGHT), ("× fewest ranks", RIGHT), ("of ceiling", RIGHT),
        ("bound by", LEFT), ("assigned", LEFT), ("read", LEFT), ("runs", RIGHT)]
    rows = []
    for entry in result["summary"]:
        outliers = f", {entry['outliers']} outliers" if entry["outliers"] else ""
        rows.append([*(shown_value(entry["case"][axis]) for axis in axes), shown(entry["gigabytes_per_second"]),
                     shown(entry["seconds"], 3), shown(entry["speed_up"]),
                     shown_share(findings.share_of_ceiling(result, entry)), entry["bottleneck"], entry["assignment"],
                     entry["io"], f"{entry['runs']}{outliers}"])
    return table(headings, rows)


def phase_table(result, experiment):
    axes = experiment.distinct()
    names = ("launch", *samples.PHASES)
    headings = [(axis, LEFT) for axis in axes] + [(name, RIGHT) for name in (*names, "CPU s", "resident, GB")]
    rows = [[*(shown_value(entry["case"][axis]) for axis in axes),
             *(median(entry[f"{name}_seconds"], 3) for name in names),
             median(entry["cpu_seconds"], 2), median(entry["peak_resident_bytes"], 2, 1e9)]
            for entry in result["summary"]]
    return table(headings, rows)


def sample_table(result, experiment):
    axes = experiment.distinct()
    headings = [(axis, LEFT) for axis in axes] + [("turn", RIGHT), ("GB/s", RIGHT), ("seconds", RIGHT),
                                                  ("command, s", RIGHT), ("bound by", LEFT), ("", LEFT)]
    ordered = sorted(result["samples"], key=lambda one: ([str(value) for value in one["case"].values()], one["turn"]))
    rows = [[*(shown_value(one["case"][axis]) for axis in axes), one["turn"] + 1,
             f"{one['gigabytes_per_second']:.2f}", f"{one['seconds']:.3f}", f"{one['wall_seconds']:.3f}",
             one["bottleneck"], "outlier" if one["outlier"] else ""] for one in ordered]
    return table(headings, rows, ["outlier" if one["outlier"] else "" for one in ordered])


def ceiling_table(result):
    headings = [("ceiling", LEFT), ("model", LEFT), ("cache", LEFT), ("ranks", RIGHT), ("turn", RIGHT),
                ("GB/s", RIGHT), ("", LEFT)]
    rows = [[entry["system"], entry["case"]["model"], entry["case"]["cache"],
             "any" if entry["system"] == "fio" else entry["case"]["ranks"], entry["turn"] + 1,
             f"{entry['gigabytes_per_second']:.2f}", entry["note"]] for entry in result["ceilings"]]
    return "<h3>Ceilings</h3>" + table(headings, rows) if rows else ""


def model_table(result):
    headings = [("model", LEFT), ("like", LEFT), ("scale", RIGHT), ("files", RIGHT), ("tensors, GB", RIGHT)]
    rows = [[model["name"], model.get("like", "an existing one"), f"{model.get('scale', 1):g}", model["files"],
             f"{model['bytes'] / 1e9:.3f}"] for model in result["models"]]
    return "<h3>Models</h3>" + table(headings, rows)


def environment(result):
    identity, machine = result["identity"], result["identity"]["machine"]
    devices = sorted({one["device"] for one in result["samples"]})
    return facts([
        ("measured", f"{result['begun']} to {result['date']}"),
        ("safeshuffle", f"{identity['version']}, commit {identity['commit']}"),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.1f} GB of memory"),
        ("GPUs", ", ".join(machine["gpus"]) or "none"),
        ("hosts", ", ".join(sorted({rank["host"] for one in result["samples"] for rank in one["ranks"]}))),
        ("system", f"Linux {machine['kernel']}; models on {machine['filesystem']}, {machine['filesystem_device']}"),
        ("loaded onto", "; ".join(devices)),
        ("ranks started by", f"{identity['launcher']['name']} ({identity['launcher']['version']})"),
    ])


def image(path):
    data = base64.b64encode(path.read_bytes()).decode()
    return f"data:image/svg+xml;base64,{data}"


def plot_path(directory, at, plot):
    return pathlib.Path(directory) / PLOTS / f"{at + 1}-{plot.kind}.svg"


def caption(result, plot):
    parts = [CAPTIONS[plot.kind]]
    if plot.launch:
        parts.append("“launch” is what the whole command took in addition: starting processes and MPI, and ending them.")
    if result["ceilings"] and plot.kind in ("lines", "bars") and plot.figure == experiments.RATE:
        parts.append("Black lines: ceilings.")
    return " ".join(parts)


def figures_of(directory, result, experiment):
    found = []
    for at, plot in enumerate(experiment.plots):
        path = plot_path(directory, at, plot)
        if path.exists():
            found.append(f'<figure><img src="{image(path)}" alt="{escape(plot.title)}"><figcaption><b>'
                         f"{escape(plot.title)}.</b> {caption(result, plot)}</figcaption></figure>")
    return "".join(found)


def not_run(result):
    entries = "".join(f"<li><b>{escape(entry['what'])}</b>: {escape(entry['reason'])}</li>"
                      for entry in result["not_run"])
    return f"<h3>Not run</h3><ul>{entries}</ul>" if entries else ""


def details(summary, content):
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def section(directory, result, experiment):
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in findings.sentences(result, experiment.distinct()))
    note = f"<p>{escape(experiment.note)}</p>" if experiment.note else ""
    definition = f"<pre>{escape(json.dumps(experiment.definition, indent=1))}</pre>"
    return "".join([
        f'<h2 id="{escape(experiment.name)}">{escape(experiment.title)}</h2>',
        f'<p class="question">{escape(experiment.question)}</p>{note}<ul class="findings">{listed}</ul>',
        figures_of(directory, result, experiment),
        "<h3>Numbers</h3>", summary_table(result, experiment), not_run(result), ceiling_table(result),
        model_table(result),
        details("Seconds by phase, CPU time and memory", phase_table(result, experiment)),
        details(f"All {len(result['samples'])} samples", sample_table(result, experiment)),
        details("The experiment", definition),
        details("Environment", environment(result)),
    ])


def experiment_of(result):
    described = result["identity"]["experiment"]
    return experiments.check("results.json", described["name"], described["definition"])


def heading(results):
    machine, version = results[0]["identity"]["machine"], results[0]["identity"]["version"]
    title = "Scaling experiments" if len(results) > 1 else experiment_of(results[0]).title
    place = f"safeshuffle {version} on {machine['cpu']}, {machine['cores']} cores; {results[0]['date'][:10]}"
    return title, f'<h1>{escape(title)}</h1><p class="soft">{escape(place)}</p>'


def no_plots(obstacle):
    return f'<p class="warning">There are no plots: {escape(obstacle)}.</p>' if obstacle else ""


def document(title, body):
    style = STYLE.read_text(encoding="utf-8")
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title><style>{style}</style></head>'
            f"<body>{body}</body></html>\n")


def html(directories, obstacle=""):
    """Of one or more results; `obstacle`: why there are no plots."""
    results = [outputs.read(directory) for directory in directories]
    parts = [(directory, result, experiment_of(result)) for directory, result in zip(directories, results)]
    title, top = heading(results)
    links = "".join(f'<a href="#{escape(experiment.name)}">{escape(experiment.title)}</a>'
                    for _, _, experiment in parts) + '<a href="#reading">How to read this</a>'
    body = "".join(section(*part) for part in parts)
    return document(title, f"{top}<nav>{links}</nav>{no_plots(obstacle)}{body}"
                    f'<h2 id="reading">How to read this</h2>{READING}')
