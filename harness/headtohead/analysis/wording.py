"""Names of contrasts and texts of intervals, as every output prints them."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.config.labels import NAMED_AXES
from headtohead.storage.metrics import show
from headtohead_judge.verdicts import NOT_SHOWN


def ends(low: float, high: float, metric: str, *, signed: bool = False, like: float = 0.0) -> str:
    """Return the ends of an interval; ``like`` as in `show`."""
    first = show(low, metric, signed=signed, like=like)
    last = show(high, metric, signed=signed, like=like)
    return f"{first} to {last}"


def interval_text(contrast: ContrastResult) -> str:
    """Return the ends of the interval of a contrast, such as ``−0.010 to +0.023``; empty without an interval."""
    interval = contrast.judgement.interval
    if interval is None or not math.isfinite(interval.low):
        return ""
    return ends(interval.low, interval.high, contrast.metric, signed=True, like=contrast.scale)


def largest_text(contrast: ContrastResult) -> str:
    """Return the largest absolute difference in the interval; empty if the verdict is not that none is shown."""
    if contrast.direction != NOT_SHOWN:
        return ""
    return show(contrast.judgement.largest_possible, contrast.metric, like=contrast.scale)


def end_of(analysis: Analysis, change: ContrastResult) -> str:
    """Return the title of the configuration that the other settings of a single change are from."""
    slug = change.against if change.family == "added" else change.variant
    return analysis.frames.by_slug[slug].title


def contrast_name(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return a short name of a contrast, such as ``positional none against sinusoidal``."""
    left, right = named_sides(analysis, contrast)
    return f"{left} against {right}" if right else left


def named_sides(analysis: Analysis, contrast: ContrastResult) -> tuple[str, str]:
    """Return the names of both sides of a contrast; for a contrast with a single name, the second is empty."""
    if contrast.family in ("added", "taken"):
        return _name_of_change(analysis, contrast), ""
    if contrast.family == "factor":
        return _sides_of_factor(contrast)
    if contrast.family != "variant":
        return contrast.name, ""
    if analysis.families.added.contrasts:
        return "all changes", ""
    left = analysis.frames.by_slug[contrast.variant].title
    if contrast.against == analysis.frames.baseline:
        return left, "baseline"
    return left, analysis.frames.by_slug[contrast.against].title


def _name_of_change(analysis: Analysis, change: ContrastResult) -> str:
    """Return the name of a single change: axis, both values, and the configuration with the other settings."""
    return f"{change.axis} {change.against_value} → {change.value}, in {end_of(analysis, change)}"


def _sides_of_factor(contrast: ContrastResult) -> tuple[str, str]:
    """Return two values of an axis, the first with the axis unless it is a name that needs none."""
    axis = str(contrast.axis)
    is_joined = " and " in axis  # several fields, whose names are in the values
    is_name = axis in NAMED_AXES and "none" not in (contrast.value, contrast.against_value)
    left = contrast.value if is_joined or is_name else f"{axis} {contrast.value}"
    if contrast.within:
        return left, f"{contrast.against_value} ({contrast.within})"
    return left, contrast.against_value
