"""Figure of the main contrasts: the difference of every seed, the mean and the 95 % interval."""

from __future__ import annotations

from matplotlib.figure import Figure

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.study import Analysis
from headtohead.figures.forest import ForestRow, forest
from headtohead.report.figures.strip import MOST_ROWS
from headtohead.storage.metrics import higher_is_better, readable, show


def forest_figure(analysis: Analysis, *, narrow: bool = False) -> Figure | None:
    """Draw the main contrasts, or return None without any."""
    rows = forest_rows(analysis)
    if not rows:
        return None
    return forest(rows, f"difference in {readable(analysis.metric)}, paired by seed", narrow=narrow)


def forest_rows(analysis: Analysis) -> list[ForestRow]:
    """Return the row of each drawn contrast."""
    return [_row(analysis, contrast) for contrast in drawn_contrasts(analysis)]


def drawn_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the contrasts with a row, best first: all, or the ``MOST_ROWS`` largest differences.

    Both contrasts of a change between two configurations are neighbours.
    """
    judged = judged_contrasts(analysis)
    largest = sorted(judged, key=lambda contrast: -abs(_mean(contrast)))[:MOST_ROWS]
    if analysis.added.contrasts or analysis.taken.contrasts:
        sizes: dict[str | None, float] = {}
        for contrast in largest:
            sizes[contrast.axis] = max(sizes.get(contrast.axis, 0.0), abs(_mean(contrast)))
        return sorted(largest, key=lambda c: (c.axis is not None, -sizes[c.axis], c.axis or "", c.kind))
    sign = -1 if higher_is_better(analysis.metric) else 1
    return sorted(largest, key=lambda contrast: sign * _mean(contrast))


def judged_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the main contrasts with a difference."""
    return [found for found in analysis.main_contrasts if found.paired is not None and found.metric == analysis.metric]


def contrast_name(analysis: Analysis, contrast: Contrast) -> str:
    """Return a short name of a contrast, such as ``none against sinusoidal``."""
    if contrast.kind in ("declared", "added", "taken"):
        return contrast.name
    if contrast.kind == "factor":
        within = f" ({contrast.within})" if contrast.within else ""
        axis = f"{contrast.axis} " if "." in str(contrast.axis) else ""
        return f"{axis}{contrast.left} against {contrast.right}{within}"
    by_slug, baseline = analysis.frames.by_slug, analysis.frames.baseline
    other = "baseline" if contrast.right == baseline else by_slug[contrast.right].title
    return f"{by_slug[contrast.left].title} against {other}"


def _mean(contrast: Contrast) -> float:
    return contrast.paired.mean if contrast.paired else 0.0


def _row(analysis: Analysis, contrast: Contrast) -> ForestRow:
    paired, metric = contrast.paired, contrast.metric
    assert paired is not None
    points = tuple(
        (value, f"{contrast.name}, seed {seed}: {show(value, metric, signed=True)}")
        for seed, value in contrast.by_seed.items()
    )
    note = f"{show(paired.mean, metric, signed=True)}  {contrast.verdict}"
    name = contrast_name(analysis, contrast)
    return ForestRow(name, note, paired.mean, paired.low, paired.high, points, contrast.detected)
