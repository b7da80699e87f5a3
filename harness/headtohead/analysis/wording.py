"""Names of contrasts and texts of intervals, as every output prints them."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.study import Analysis
from headtohead.config.labels import NAMED_AXES
from headtohead.config.labels import text as value_text
from headtohead.storage.metrics import show
from headtohead_judge.paired_tests import Interval


def ends(low: float, high: float, metric: str, *, signed: bool = False, like: float = 0.0) -> str:
    """Return the ends of an interval; ``like`` as in `show`."""
    first = show(low, metric, signed=signed, like=like)
    last = show(high, metric, signed=signed, like=like)
    return f"{first} to {last}"


def leveled(interval: Interval | None, contrast: Contrast) -> str:
    """Return an interval of a contrast with its level: ``98.75 %: −0.010 to 0.023``."""
    if interval is None or not math.isfinite(interval.low):
        return "–"
    limits = ends(interval.low, interval.high, contrast.metric, like=contrast.scale)
    return f"{interval.percent}: {limits}"


def end_of(analysis: Analysis, change: Contrast) -> str:
    """Return the title of the configuration that the other settings of a single change are from."""
    slug = change.right if change.kind == "added" else change.left
    return analysis.frames.by_slug[slug].title


def contrast_name(analysis: Analysis, contrast: Contrast) -> str:
    """Return a short name of a contrast, such as ``positional none against sinusoidal``."""
    left, right = named_sides(analysis, contrast)
    return f"{left} against {right}" if right else left


def named_sides(analysis: Analysis, contrast: Contrast) -> tuple[str, str]:
    """Return the names of both sides of a contrast; for a contrast with a single name, the second is empty."""
    if contrast.kind in ("added", "taken"):
        return _name_of_change(analysis, contrast), ""
    if contrast.kind == "factor":
        return _sides_of_factor(contrast)
    if contrast.kind != "variant":
        return contrast.name, ""
    if analysis.families.added.contrasts:
        return "all changes", ""
    left = analysis.frames.by_slug[contrast.left].title
    if contrast.right == analysis.frames.baseline:
        return left, "baseline"
    return left, analysis.frames.by_slug[contrast.right].title


def _name_of_change(analysis: Analysis, change: Contrast) -> str:
    axis = str(change.axis)
    before = value_text(analysis.frames.by_slug[change.right].axes[axis])
    after = value_text(analysis.frames.by_slug[change.left].axes[axis])
    return f"{axis} {before} → {after}, in {end_of(analysis, change)}"


def _sides_of_factor(contrast: Contrast) -> tuple[str, str]:
    """Return two values of an axis, the first with the axis unless it is a name that needs none."""
    axis = str(contrast.axis)
    is_joined = " and " in axis  # several fields, whose names are in the values
    is_name = axis in NAMED_AXES and "none" not in (contrast.left, contrast.right)
    left = contrast.left if is_joined or is_name else f"{axis} {contrast.left}"
    if contrast.within:
        return left, f"{contrast.right} ({contrast.within})"
    return left, contrast.right
