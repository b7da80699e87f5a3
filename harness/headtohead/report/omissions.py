"""Sentences on the variants that the figures of a large study omit."""

from __future__ import annotations

from headtohead.analysis.study import Analysis
from headtohead.report.figures.forest import drawn_contrasts, judged_contrasts
from headtohead.report.figures.panels import MOST_LINES
from headtohead.report.figures.strip import drawn_variants
from headtohead.report.gallery import MOST_VARIANTS


def omissions(analysis: Analysis) -> dict[str, str]:
    """Return a sentence for each figure or section that omits variants, by its name."""
    sentences: dict[str, str] = {}
    total = len(analysis.order)
    contrasts, rows = len(judged_contrasts(analysis)), len(drawn_variants(analysis))
    if (num_drawn := len(drawn_contrasts(analysis))) < contrasts:
        sentences["contrasts"] = f"The {num_drawn} largest of {contrasts} differences."
    if rows < total:
        sentences["scores"] = sentences["cost"] = f"{rows} of {total} variants: the best and the baseline."
    if total > MOST_LINES:
        sentences["lines"] = f"{MOST_LINES} of {total} variants: the best and the baseline."
    trained = sum(analysis.frames.trained(slug) == slug for slug in analysis.frames.by_slug)
    if trained > MOST_VARIANTS:
        sentences["translations"] = f"Only the first {MOST_VARIANTS} variants of the design are included."
    return sentences
