"""One page about a comparison, with everything inside, to send on."""

from lib.comparison import chart, results
from lib.experiments import page
from lib.experiments.page import LEFT, RIGHT, escape

READING = """
<p><b>GB/s</b> is the bytes of the tensors that are stored, each counted once, by the seconds from the start of the load
on the first rank to its end on the last (10⁹ bytes). Figures are medians of all turns, with the least and the most; in
each turn every system runs once. <b>÷ it</b> is how many times as fast the first system was in the same turn.</p>
<p>Every rank ends with the same bytes in memory of its own, which was checked for each system. <b>Cold</b> runs begin
with no page of the files in the page cache, <b>warm</b> ones with all.</p>
<p><b>CPU s</b>: of all ranks during the load. <b>Resident</b>: the peak, all ranks added, with pages of files that
several ranks have mapped counted several times; <b>anonymous</b>: the part that is not pages of files; <b>before</b>:
when the load began. <b>From disk</b>: what the processes had read from storage. <b>GPU</b>: the most memory of all GPUs
that was in use, beyond what was before the processes started.</p>
<p><b>Outliers</b>, by their seconds, are drawn hollow and marked among all samples, and count in all figures.</p>
<p><b>fio</b>, <b>memory-copy</b> and <b>cached-read</b> are ceilings: sequential direct reads of the same files, one
copy of every byte into new memory, and reading every byte from the page cache into new memory.</p>
"""


def table_of(result, title, entries):
    headings = [(heading.format(result["systems"][0]["name"]), RIGHT) for heading in results.HEADINGS]
    headings[0] = ("", LEFT)
    return f"<h3>{escape(title)}</h3>" + page.table(headings, [results.table_row(entry) for entry in entries])


def tables(result):
    return "".join(table_of(result, results.case_title(*group), results.entries_of(result, group))
                   for group in results.groups(result["samples"]))


def systems(result):
    return "".join(f"<li><b>{escape(each['name'])}</b>{escape(results.versions_of(each))}: "
                   f"{escape(each['settings'])}</li>" for each in result["systems"])


def not_run(result):
    entries = "".join(f"<li><b>{escape(each['system'])}</b>{escape(results.case_of(each))}: "
                      f"{escape(each['reason'])}</li>" for each in result["not_run"])
    return f"<h3>Not run</h3><ul>{entries}</ul>" if entries else ""


def all_samples(result):
    headings = [(name.replace("_", " "), LEFT if name in ("dtype", "cache", "system", "outlier", "note") else RIGHT)
                for name in results.COLUMNS]
    rows = [results.sample_row(sample) for sample in result["samples"]]
    marks = ["outlier" if sample["outlier"] else "" for sample in result["samples"]]
    return page.details(f"All {len(rows)} samples", page.table(headings, rows, marks))


def html(result, directory, obstacle=""):
    """`obstacle`: why there are no plots."""
    measured = chart.as_measured(result)
    title = "Comparison of loaders"
    place = f"{results.machine_line(result['machine'])}; {result['date'][:10]}; commit {result['commit']}"
    return page.document(title, "".join([
        f'<h1>{title}</h1><p class="soft">{escape(place)}</p><p>{escape(results.model_line(result))}</p>',
        page.no_plots(obstacle), page.figures_of(directory, measured, chart.experiment_of(measured)),
        tables(result), f"<h3>Systems</h3><ul>{systems(result)}</ul>", not_run(result),
        f"<p>{escape(results.proof_line(result['proofs']))}</p>", all_samples(result),
        f"<h2>How to read this</h2>{READING}"]))
