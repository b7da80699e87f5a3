"""How much of a large study each picture shows: what a reader must know of what is left out."""

from __future__ import annotations

from headtohead.analysis.study import Analysis
from headtohead.report.attention import MOST_VARIANTS
from headtohead.report.figures.forest import drawn_contrasts, judged_contrasts
from headtohead.report.figures.panels import MOST_LINES
from headtohead.report.figures.strip import drawn


def parts(analysis: Analysis) -> dict[str, str]:
    """Return a sentence for each picture or section that shows a part only, by its name."""
    told: dict[str, str] = {}
    total = len(analysis.order)
    contrasts, rows = len(judged_contrasts(analysis)), len(drawn(analysis))
    if (shown := len(drawn_contrasts(analysis))) < contrasts:
        told["contrasts"] = f"The {shown} largest of {contrasts} differences."
    if rows < total:
        told["scores"] = told["cost"] = f"{rows} of {total} variants: the best, and the baseline."
    if total > MOST_LINES and not analysis.path:
        told["lines"] = f"{MOST_LINES} of {total} variants: the best, and the baseline."
    trained = sum(analysis.frames.trained(slug) == slug for slug in analysis.frames.variants)
    if trained > MOST_VARIANTS:
        told["translations"] = f"Of the first {MOST_VARIANTS} variants of the design."
    return told
