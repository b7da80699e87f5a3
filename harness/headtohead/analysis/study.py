"""An experiment, analysed: who is ranked, in which order, and every declared contrast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headtohead.analysis.contrasts import IDENTICAL, UNDETECTED, Contrast, Family, families, incomplete, unranked
from headtohead.analysis.shapley import PathAnalysis, analyse_path
from headtohead.statistics.paired_tests import Summary
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import alone, higher_is_better


@dataclass(frozen=True)
class Analysis:
    """What a report says of the primary metric; computed once, drawn and printed many times.

    ``order`` lists the variants best first, those that are not ranked last; of a path its ends,
    the single differences, then the points inside walks. ``ceiling`` is the exact match that no
    encoder blind to word order can pass, where the data states one.
    """

    frames: Frames
    metric: str
    allow_partial: bool
    summaries: Mapping[str, Summary]
    unranked: Mapping[str, str]
    incomplete: Mapping[str, str]
    order: tuple[str, ...]
    factors: Family
    variants: Family
    noise_floor: float
    ceiling: float | None
    path: PathAnalysis | None = None

    @property
    def ranked(self) -> tuple[str, ...]:
        """The variants whose means are shown, best first."""
        return tuple(slug for slug in self.order if slug not in self.withheld)

    @property
    def withheld(self) -> Mapping[str, str]:
        """The variants whose means are not shown, and why."""
        if self.allow_partial:
            return {s: why for s, why in self.unranked.items() if not self.summaries[s].n}
        return self.unranked


def analyse(frames: Frames, *, allow_partial: bool = False) -> Analysis:
    """Analyse an experiment by its primary metric."""
    metric = frames.record.metrics.primary
    summaries = {slug: frames.summary(slug, metric) for slug in frames.by_slug}
    missing = {slug: reason for slug in frames.by_slug if (reason := unranked(frames, slug, metric))}
    sign = -1.0 if higher_is_better(metric) else 1.0

    def place(slug: str) -> tuple[bool, bool, float]:
        mean = summaries[slug].mean
        withheld = slug in missing and not allow_partial
        return withheld, math.isnan(mean), 0.0 if math.isnan(mean) else sign * mean

    tested = families(frames, metric, allow_partial=allow_partial)
    path = analyse_path(frames, metric, tested, allow_partial=allow_partial)
    return Analysis(
        frames=frames,
        metric=metric,
        allow_partial=allow_partial,
        summaries=summaries,
        unranked=missing,
        incomplete=incomplete(frames),
        order=_along(path, frames) if path else tuple(sorted(frames.by_slug, key=place)),
        factors=tested.factors,
        variants=tested.variants,
        noise_floor=summaries[frames.baseline].sd,
        ceiling=_ceiling(frames.record.data, metric),
        path=path,
    )


def _along(path: PathAnalysis, frames: Frames) -> tuple[str, ...]:
    """Return a path's points: ends first, then single differences, then the rest."""
    return tuple(dict.fromkeys([path.start, path.end, *path.singles, *frames.by_slug]))


def main_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the contrasts an answer speaks of.

    Of a path its choices, largest share first. Otherwise the factor contrasts, if any could be
    tested, and with them the variants that no factor contrast covers; otherwise every variant
    against the baseline.
    """
    if analysis.path:
        return [share.contrast for share in analysis.path.shares]
    factors = list(analysis.factors.contrasts)
    if not any(contrast.paired is not None for contrast in factors):
        return list(analysis.variants.contrasts)
    covered = {slug for contrast in factors for pair in contrast.pairs for slug in pair}
    return [*factors, *(c for c in analysis.variants.contrasts if c.left not in covered)]


def found_settings(analysis: Analysis, contrast: Contrast) -> list[Contrast]:
    """Return the variants with a detected difference that are settings of a factor contrast."""
    trained = analysis.frames.trained
    pairs = {frozenset(map(trained, pair)) for pair in contrast.pairs}
    return [
        one
        for one in analysis.variants.contrasts
        if one.found and frozenset((trained(one.left), trained(one.right))) in pairs
    ]


def settings_contradict(analysis: Analysis, contrast: Contrast) -> bool:
    """Return whether an average without a detected difference hides differences of its settings.

    It does if a setting's own test detects a difference, as a variant against the baseline or among
    the settings averaged over (Holm), or if the range over settings reaches beyond the noise floor
    on both sides of zero.
    """
    if contrast.kind != "factor" or contrast.verdict not in (UNDETECTED, IDENTICAL):
        return False
    low, high = contrast.spread or (0.0, 0.0)
    return (
        contrast.settings_differ or min(-low, high) > analysis.noise_floor or bool(found_settings(analysis, contrast))
    )


def ceiling_verdicts(analysis: Analysis) -> dict[str, str]:
    """Return, for variants blind to word order, whether they stay under the ceiling.

    Judged on the score of one sentence at a time where it was taken: pads that a mask leaves
    visible tell an encoder its sentence's length, which a bag of words does not.
    """
    if analysis.ceiling is None:
        return {}
    found = {}
    for slug, variant in analysis.frames.by_slug.items():
        if not variant.blind_to_order:
            continue
        scores = analysis.frames.scores(slug, alone(analysis.metric)) or analysis.frames.scores(slug, analysis.metric)
        if scores:
            over = max(scores.values()) > analysis.ceiling + 1e-9
            found[slug] = "passes the ceiling: suspect" if over else "stays under the ceiling"
    return found


def _ceiling(data: Mapping[str, Any], metric: str) -> float | None:
    ceiling = data.get("bag_of_words_ceiling")
    if ceiling is None or float(ceiling) >= 1 or "exact_match" not in metric:
        return None
    return float(ceiling)
