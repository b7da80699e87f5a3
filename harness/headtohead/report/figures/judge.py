"""Forest plot of the judgement of a table of scores."""

from __future__ import annotations

from pathlib import Path

from headtohead.analysis.judge import Judged
from headtohead.errors import HeadToHeadError
from headtohead.figures import style
from headtohead.figures.forest import ForestRow, forest
from headtohead.files import replace
from headtohead.report.figures.strip import MOST_ROWS
from headtohead.report.judge import Numbers
from headtohead.statistics.verdicts import BETTER, WORSE

FORMATS = (".svg", ".pdf", ".png")


def write_figure(judged: Judged, path: Path) -> None:
    """Write the differences from the baseline, best first, to an SVG, PDF or PNG file.

    With more than `MOST_ROWS` variants, the largest differences are drawn.

    Raises:
        HeadToHeadError: If the ending of the name is none of these.
    """
    if path.suffix.lower() not in FORMATS:
        raise HeadToHeadError(f"--figure {path}: unknown ending '{path.suffix}'; use {', '.join(FORMATS)}")
    show = Numbers(judged)
    sign = -1 if judged.higher_is_better else 1
    largest = sorted(judged.variants, key=lambda found: -abs(found.difference.mean))[:MOST_ROWS]
    rows = [
        ForestRow(
            name=f"{found.variant} against {judged.baseline}",
            note=f"{show(found.difference.mean, signed=True)}  {found.judgement.verdict}",
            mean=found.difference.mean,
            low=found.difference.low,
            high=found.difference.high,
            points=tuple((value, f"seed {seed}: {show(value, signed=True)}") for seed, value in found.by_seed.items()),
            is_strong=found.judgement.verdict in (BETTER, WORSE),
        )
        for found in sorted(largest, key=lambda found: sign * found.difference.mean)
    ]
    paired = ", paired by seed" if judged.is_paired else ""
    figure = forest(rows, f"difference in {judged.metric}{paired}")
    if path.suffix.lower() == ".svg":
        content = style.to_svg(figure, salt="judge").encode()
    elif path.suffix.lower() == ".png":
        content = style.to_png(figure)
    else:
        content = style.to_pdf(figure)
    replace(path, lambda temporary: temporary.write_bytes(content))
