"""Analyse an experiment: ranking of the variants and all declared contrasts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headtohead.analysis.contrasts import Contrast, Family, families, incomplete, unranked
from headtohead.analysis.looks import LooksStatus, looks_status
from headtohead.planning.axes import DATA_AXIS
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.paired_tests import ALPHA, Paired, Summary, paired_differences
from headtohead.statistics.verdicts import EQUIVALENT, IDENTICAL, INCONCLUSIVE
from headtohead.storage.contrasts import InteractionContrast
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import higher_is_better, label, unpadded


@dataclass(frozen=True)
class Analysis:
    """The analysis of an experiment's primary metric, which all parts of a report use.

    ``order`` lists the variants, best first and unranked variants last, by value of the axis ``data``.
    ``baseline_sd`` is the standard deviation of
    the baseline over seeds. ``upper_bound`` is the bag-of-words upper bound: the highest exact match that an
    order-invariant encoder can reach on the test set, None if the data states none or each seed has its own test set.
    """

    frames: Frames
    metric: str
    allow_partial: bool
    summaries: Mapping[str, Summary]
    unranked: Mapping[str, str]
    incomplete: Mapping[str, str]
    order: tuple[str, ...]
    factors: Family
    interactions: Family
    declared: Family
    variants: Family
    added: Family
    taken: Family
    baseline_sd: float
    upper_bound: float | None
    looks: LooksStatus | None = None

    @property
    def families(self) -> dict[str, Family]:
        """The families of contrasts by name."""
        families = {"variants": self.variants, "factors": self.factors, "interactions": self.interactions}
        return {**families, "declared": self.declared, "added": self.added, "taken": self.taken}

    @property
    def ranked(self) -> tuple[str, ...]:
        """The variants with a reported mean, best first."""
        return tuple(slug for slug in self.order if slug not in self.withheld)

    @property
    def withheld(self) -> Mapping[str, str]:
        """The variants without a reported mean, with the reason."""
        if self.allow_partial:
            return {slug: reason for slug, reason in self.unranked.items() if not self.summaries[slug].n}
        return self.unranked


def analyse(frames: Frames, *, allow_partial: bool = False) -> Analysis:
    """Return the analysis of an experiment's primary metric.

    ``allow_partial`` ranks variants on the seeds that are finished.
    """
    metric = frames.record.metrics.primary
    summaries = {slug: frames.summary(slug, metric) for slug in frames.by_slug}
    missing = {slug: reason for slug in frames.by_slug if (reason := unranked(frames, slug, metric))}
    sign = -1.0 if higher_is_better(metric) else 1.0

    data_sets = list(dict.fromkeys(variant.axes.get(DATA_AXIS) for variant in frames.by_slug.values()))

    def sort_key(slug: str) -> tuple[int, bool, bool, float]:
        mean = summaries[slug].mean
        is_withheld = slug in missing and not allow_partial
        data_set = data_sets.index(frames.by_slug[slug].axes.get(DATA_AXIS))
        return data_set, is_withheld, math.isnan(mean), 0.0 if math.isnan(mean) else sign * mean

    tested = families(frames, metric, allow_partial=allow_partial)
    analysis = Analysis(
        frames=frames,
        metric=metric,
        allow_partial=allow_partial,
        summaries=summaries,
        unranked=missing,
        incomplete=incomplete(frames),
        order=tuple(sorted(frames.by_slug, key=sort_key)),
        factors=tested.factors,
        interactions=tested.interactions,
        declared=tested.declared,
        variants=tested.variants,
        baseline_sd=summaries[frames.baseline].sd,
        upper_bound=_upper_bound(frames, metric),
        added=tested.added,
        taken=tested.taken,
    )
    return replace(analysis, looks=looks_status(frames, main_contrasts(analysis)))


def main_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the contrasts of the report's answer.

    Between two configurations, their difference, then the added and the taken changes. Otherwise the contrasts that
    the file declares; without any, the tested factor contrasts and the variants that no factor contrast covers.
    Without tested factor contrasts, every variant against the baseline.
    """
    if analysis.added.contrasts or analysis.taken.contrasts:
        return [*analysis.variants.contrasts, *analysis.added.contrasts, *analysis.taken.contrasts]
    if analysis.declared.contrasts:
        return list(analysis.declared.contrasts)
    factors = list(analysis.factors.contrasts)
    if not any(contrast.paired is not None for contrast in factors):
        return list(analysis.variants.contrasts)
    covered = {slug for contrast in factors for pair in contrast.pairs for slug in pair}
    return [*factors, *(contrast for contrast in analysis.variants.contrasts if contrast.left not in covered)]


@dataclass(frozen=True)
class SeparateEffects:
    """The effect of a factor contrast by value of another axis, on which it depends significantly (``holm_p``)."""

    other_axis: str
    holm_p: float
    effects: Mapping[str, Paired]


def separate_effects(analysis: Analysis, contrast: Contrast) -> SeparateEffects | None:
    """Return the effects of a factor contrast by the axis with its most significant interaction, or None.

    An interaction counts if its Holm p is at most 5 % and it is not shown to be smaller than the margin.
    """
    frames = analysis.frames
    sides = {frozenset(pair) for pair in contrast.pairs}
    declared = [record for record in frames.record.contrasts if isinstance(record, InteractionContrast)]
    found = []
    for record, interaction in zip(declared, analysis.interactions.contrasts, strict=True):
        # The p of an untested interaction is NaN.
        if not interaction.judgement.holm_p <= ALPHA or interaction.verdict == EQUIVALENT:
            continue
        for axis, value, other in (
            (record.axis, record.value, record.other_axis),
            (record.other_axis, record.other_value, record.axis),
        ):
            first, swapped = record.pairs[:2]
            effects = record.pairs[:2] if axis == record.axis else tuple(zip(first, reversed(swapped), strict=True))
            is_in_block = any(frozenset(pair) in sides for pair in effects)
            if contrast.axis == axis and contrast.left == label(value) and is_in_block:
                found.append((interaction.judgement.holm_p, other))
    if not found:
        return None
    p, other = min(found)
    pairs: dict[str, list[tuple[str, str]]] = {}
    for left, right in contrast.pairs:
        pairs.setdefault(label(frames.by_slug[left].axes[other]), []).append((left, right))
    scores = {slug: frames.scores(slug, contrast.metric) for pair in contrast.pairs for slug in pair}
    by_value = {
        value: paired_differences(pair_differences(scores, group)[1].mean(axis=0)) for value, group in pairs.items()
    }
    return SeparateEffects(other, p, by_value) if len(by_value) > 1 else None


def detected_settings(analysis: Analysis, contrast: Contrast) -> list[Contrast]:
    """Return the detected variant contrasts that are settings of a factor contrast."""
    trained = analysis.frames.trained
    pairs = {frozenset(map(trained, pair)) for pair in contrast.pairs}
    return [
        setting
        for setting in analysis.variants.contrasts
        if setting.detected and frozenset((trained(setting.left), trained(setting.right))) in pairs
    ]


def settings_contradict(analysis: Analysis, contrast: Contrast) -> bool:
    """Return whether a factor contrast is inconclusive or identical although its settings differ.

    This is the case if the test of a setting detects a difference, against the baseline or among the averaged
    settings (Holm), or if the range over settings exceeds the baseline's standard deviation on both sides of
    zero.
    """
    if contrast.kind != "factor" or contrast.verdict not in (INCONCLUSIVE, IDENTICAL):
        return False
    low, high = contrast.spread or (0.0, 0.0)
    return (
        contrast.settings_differ
        or min(-low, high) > analysis.baseline_sd
        or bool(detected_settings(analysis, contrast))
    )


def upper_bound_verdicts(analysis: Analysis) -> dict[str, str]:
    """Return, by slug of order-invariant variants, whether the score respects the bag-of-words upper bound.

    The score without padding is used where it was evaluated: padding that a mask does not hide reveals the
    sentence length to the encoder, which a bag of words does not.
    """
    if analysis.upper_bound is None:
        return {}
    verdicts, frames = {}, analysis.frames
    for slug, variant in frames.by_slug.items():
        if not variant.order_invariant or not _has_bound(frames, slug):
            continue
        scores = frames.scores(slug, unpadded(analysis.metric)) or frames.scores(slug, analysis.metric)
        if scores:
            exceeds = max(scores.values()) > analysis.upper_bound + 1e-9
            verdicts[slug] = "exceeds the upper bound: suspect" if exceeds else "within the upper bound"
    return verdicts


def _has_bound(frames: Frames, slug: str) -> bool:
    """Return whether the upper bound of the baseline's test data is that of a variant's scores."""
    limit = frames.by_slug[slug].config["evaluate"]["test_limit"]
    scores_all = limit is None or limit >= frames.record.data["counts"]["test"]
    return scores_all and frames.same_data((slug, frames.baseline))


def _upper_bound(frames: Frames, metric: str) -> float | None:
    bound = frames.record.data.get("bag_of_words_upper_bound")
    if bound is None or float(bound) >= 1 or "exact_match" not in metric:
        return None
    return None if frames.has_draws or not _has_bound(frames, frames.baseline) else float(bound)
