"""A comparison in the form of an experiment, in which systems are an axis: for plots."""

from lib.experiments import outputs, samples
from lib.experiments.experiment import Experiment, Model, Plot
from lib.figures import figures

CEILINGS = ("fio", "memory-copy")
MODEL = "the model"
PLOTS = (Plot("bars", "GB/s by ranks and system", x="ranks", series="system"),)


def case_of(sample):
    return {"model": MODEL, **{axis: sample[axis] for axis in ("cache", "ranks", "dtype", "system")}}


def loads_of(result):
    wanted = ("turn", "seconds", "gigabytes_per_second")
    return samples.with_outliers([{"case": case_of(one), **{name: one[name] for name in wanted}}
                                  for one in result["samples"] if one["system"] not in CEILINGS])


def summary_of(loads):
    return [{"case": group[0]["case"], "outliers": sum(one["outlier"] for one in group),
             "gigabytes_per_second": figures([one["gigabytes_per_second"] for one in group])}
            for group in samples.by_case(loads).values()]


def as_measured(result):
    """What the plots of experiments need of a comparison's results."""
    loads = loads_of(result)
    ceilings = [{"case": case_of(one), "system": one["system"], "gigabytes_per_second": one["gigabytes_per_second"]}
                for one in result["samples"] if one["system"] in CEILINGS]
    return {"models": [{"name": MODEL, "bytes": result["model"]["bytes"]}], "samples": loads,
            "summary": summary_of(loads), "ceilings": ceilings}


def read(directory):
    return as_measured(outputs.read(directory))


def experiment_of(measured):
    """Its axes and plots."""
    def values(axis):
        return tuple(dict.fromkeys(entry["case"][axis] for entry in measured["summary"]))

    return Experiment(name="compare", title="", question="", models=(Model(MODEL, "", 1),), ranks=values("ranks"),
                      cache=values("cache"), load={"dtype": values("dtype"), "system": values("system")}, turns=1,
                      ceilings=(), plots=PLOTS, grows_with_ranks=False, note="", definition={})
