"""What the figures say, in sentences."""

from lib.experiments.measurement import title_of
from lib.figures import LEAST_SAMPLES, shown

PHASE_WORDS = {"open": "opening files", "plan": "planning", "allocate": "allocating", "read": "reading",
               "h2d": "copying to the GPU", "pack": "packing", "exchange": "exchanging", "wait": "waiting"}
MOST_SPEED_UPS = 8


def highest(ceilings):
    """GB/s by name."""
    found = {}
    for entry in ceilings:
        found[entry["system"]] = max(found.get(entry["system"], 0), entry["gigabytes_per_second"])
    return found


def ceilings_of(result, case):
    """GB/s of the ceilings of a case by name, each the highest of those measured. Reads by fio do not depend on the
    number of ranks: where there are none for this one, those for others count."""
    alike = [entry for entry in result["ceilings"]
             if all(entry["case"][axis] == case[axis] for axis in ("model", "cache"))]
    return highest(entry for entry in alike if entry["system"] == "fio") | highest(
        entry for entry in alike if entry["case"]["ranks"] == case["ranks"])


def ceiling_of(result, case):
    """Name and GB/s of the lowest of the ceilings of a case; None if none was measured."""
    return min(ceilings_of(result, case).items(), key=lambda item: item[1], default=None)


def share_of_ceiling(result, entry):
    ceiling = ceiling_of(result, entry["case"])
    return None if ceiling is None else entry["gigabytes_per_second"]["median"] / ceiling[1]


def sentence_of_ceiling(result, entry):
    ceiling = ceiling_of(result, entry["case"])
    if ceiling is None:
        return ""
    return f"; {share_of_ceiling(result, entry):.0%} of the ceiling, {ceiling[1]:.2f} GB/s ({ceiling[0]})"


def fastest(result, axes):
    best = max(result["summary"], key=lambda entry: entry["gigabytes_per_second"]["median"])
    return (f"Fastest: {title_of(best['case'], axes)}: {shown(best['gigabytes_per_second'])} GB/s, "
            f"bound by {PHASE_WORDS.get(best['bottleneck'], best['bottleneck'])}"
            f"{sentence_of_ceiling(result, best)}.")


def clearly_fastest(entries):
    """The one of which the slowest run is faster than the median of each other; None if there is none, or one run."""
    rates = [entry["gigabytes_per_second"] for entry in entries]
    for at, (entry, rate) in enumerate(zip(entries, rates)):
        if entry["runs"] > 1 and all(rate["least"] > other["median"] for other in rates[:at] + rates[at + 1:]):
            return entry
    return None


def speed_up_sentences(result, axes):
    """Of those with the most ranks."""
    most = max(entry["case"]["ranks"] for entry in result["summary"])
    found = []
    for entry in result["summary"]:
        if entry["speed_up"] is None or entry["case"]["ranks"] != most:
            continue
        base, ideal = entry["base_ranks"], most / entry["base_ranks"]
        found.append(f"{title_of(entry['case'], axes)}: {shown(entry['speed_up'])} times the GB/s of "
                     f"{base} rank{'s' if base > 1 else ''}, {entry['speed_up']['median'] / ideal:.0%} of ideal"
                     f"{sentence_of_ceiling(result, entry)}.")
    return found if len(found) <= MOST_SPEED_UPS else []


def bounds(result):
    words = [PHASE_WORDS.get(entry["bottleneck"], entry["bottleneck"]) for entry in result["summary"]]
    counted = sorted(((words.count(word), word) for word in set(words)), reverse=True)
    return "Bound by " + ", ".join(f"{word} in {number}" for number, word in counted) + \
        f" of {len(words)} cases."


def outlier_sentence(result):
    number, total = sum(one["outlier"] for one in result["samples"]), len(result["samples"])
    if max(entry["runs"] for entry in result["summary"]) < LEAST_SAMPLES:
        return f"{total} runs: too few of each case to tell outliers from the spread."
    return f"{total} runs, of which {number or 'none'} are outliers, which count in all figures."


def sentences(result, axes):
    """`axes`: those that tell cases apart."""
    if not result["summary"]:
        return ["Nothing was measured."]
    found = [fastest(result, axes), *speed_up_sentences(result, axes), bounds(result), outlier_sentence(result)]
    return [sentence[0].upper() + sentence[1:] for sentence in found]
