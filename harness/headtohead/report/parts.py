"""How much of a large study each figure shows."""

from __future__ import annotations

from headtohead.analysis.study import Analysis
from headtohead.report.figures.forest import drawn_contrasts, judged_contrasts
from headtohead.report.figures.panels import MOST_LINES
from headtohead.report.figures.strip import drawn
from headtohead.report.gallery import MOST_VARIANTS


def parts(analysis: Analysis) -> dict[str, str]:
    """Return a sentence for each figure or section that leaves variants out, by its name."""
    sentences: dict[str, str] = {}
    total = len(analysis.order)
    contrasts, rows = len(judged_contrasts(analysis)), len(drawn(analysis))
    if (shown := len(drawn_contrasts(analysis))) < contrasts:
        sentences["contrasts"] = f"The {shown} largest of {contrasts} differences."
    if rows < total:
        sentences["scores"] = sentences["cost"] = f"{rows} of {total} variants: the best, and the baseline."
    if total > MOST_LINES and not analysis.path:
        sentences["lines"] = f"{MOST_LINES} of {total} variants: the best, and the baseline."
    trained = sum(analysis.frames.trained(slug) == slug for slug in analysis.frames.variants)
    if trained > MOST_VARIANTS:
        sentences["translations"] = f"Of the first {MOST_VARIANTS} variants of the design."
    return sentences
