"""Figures of repeated measurements."""

import statistics

LEAST_SAMPLES = 5  # below that, nothing tells an outlier from the spread
MOST_DEVIATIONS = 3.5
LEAST_SHARE = 0.1  # of the median: smaller deviations are never outliers
DEVIATIONS_OF_NORMAL = 1.4826  # standard deviation by the median absolute deviation, of a normal distribution


def figures(values):
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "least": min(known), "most": max(known)}


def shown(value, digits=2, unit=1):
    if value is None:
        return "–"
    numbers = [value[name] / unit for name in ("median", "least", "most")]
    if numbers[1] == numbers[2]:
        return f"{numbers[0]:.{digits}f}"
    return f"{numbers[0]:.{digits}f} ({numbers[1]:.{digits}f}–{numbers[2]:.{digits}f})"


def median(value, digits, unit=1):
    return "–" if value is None else f"{value['median'] / unit:.{digits}f}"


def outliers(values):
    """For each value, whether it is an outlier: further from the median than 3.5 standard deviations, as the median
    absolute deviation gives them (Iglewicz and Hoaglin), and than a tenth of the median."""
    if len(values) < LEAST_SAMPLES:
        return [False] * len(values)
    middle = statistics.median(values)
    deviation = DEVIATIONS_OF_NORMAL * statistics.median(abs(value - middle) for value in values)
    limit = max(MOST_DEVIATIONS * deviation, LEAST_SHARE * abs(middle))
    return [abs(value - middle) > limit for value in values]
