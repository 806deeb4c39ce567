"""A comparison in the form of an experiment, in which systems are an axis: for plots."""

import dataclasses

from lib.experiments import outputs, samples
from lib.experiments.experiment import CEILINGS, RATE, Experiment, Model, Plot
from lib.experiments.measurement import title_of
from lib.figures import figures

MODEL = "the model"
CPU, MEMORY = "cpu_seconds_per_gigabyte", "peak_resident_gigabytes"
PLOTS = (Plot("bars", "GB/s by ranks and system", x="ranks", series="system"),
         Plot("bars", "CPU seconds per GB by ranks and system", x="ranks", series="system", figure=CPU),
         Plot("bars", "Peak resident memory by ranks and system", x="ranks", series="system",
              figure=MEMORY))


def case_of(sample):
    return {"model": MODEL, **{axis: sample[axis] for axis in ("cache", "ranks", "dtype", "system")}}


def per(value, unit):
    return None if value is None else value / unit


def load_of(sample):
    return {"case": case_of(sample), "turn": sample["turn"], "outlier": sample["outlier"], RATE: sample[RATE],
            CPU: per(sample["cpu_seconds"], sample["bytes"] / 1e9), MEMORY: per(sample["peak_resident_bytes"], 1e9)}


def loads_of(result):
    """In the order of the systems, which turns do not have."""
    order = [system["name"] for system in result["systems"]]
    return [load_of(sample) for sample in sorted(result["samples"], key=lambda sample: order.index(sample["system"]))
            if sample["system"] not in CEILINGS]


def summary_of(loads):
    return [{"case": group[0]["case"], "outliers": sum(one["outlier"] for one in group),
             **{name: figures([one[name] for one in group]) for name in (RATE, CPU, MEMORY)}}
            for group in samples.by_case(loads).values()]


def ceilings_of(result):
    """One for each case but for its dtype, on which none depends: the median of its turns, like the rates beside it."""
    measured = [{"case": case_of(one) | {"dtype": None}, RATE: one[RATE]} for one in result["samples"]
                if one["system"] in CEILINGS]
    return [{"case": group[0]["case"], "system": group[0]["case"]["system"],
             RATE: figures([one[RATE] for one in group])["median"]} for group in samples.by_case(measured).values()]


def as_measured(result):
    """What the plots of experiments need of a comparison's results."""
    loads = loads_of(result)
    return {"models": [{"name": MODEL, "bytes": result["model"]["bytes"]}], "samples": loads,
            "summary": summary_of(loads), "ceilings": ceilings_of(result)}


def read(directory):
    return as_measured(outputs.read(directory))


def plots_of(axes):
    """What all loads have in common is in the titles."""
    common = {axis: values[0] for axis, values in axes.items() if len(values) == 1}
    return tuple(dataclasses.replace(plot, title=", ".join(filter(None, (plot.title, title_of(common, common)))))
                 for plot in PLOTS)


def experiment_of(measured):
    """Its axes and plots."""
    def values(axis):
        return tuple(dict.fromkeys(entry["case"][axis] for entry in measured["summary"]))

    cache, dtypes = values("cache"), values("dtype")
    return Experiment(name="compare", title="", question="", models=(Model(MODEL, "", 1),), ranks=values("ranks"),
                      cache=cache, load={"dtype": dtypes, "system": values("system")}, turns=1, ceilings=(),
                      plots=plots_of({"cache": cache, "dtype": dtypes}), grows_with_ranks=False, note="",
                      definition={})
