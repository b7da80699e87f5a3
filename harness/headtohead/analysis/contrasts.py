"""Test the contrasts of an experiment: variants, axis values, the file's own, changes between two configurations.

Each kind is a family for Holm's correction. A contrast that cannot be tested has a reason and is not
counted in its family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from headtohead.analysis.scores import Scores, score_mismatch, unranked
from headtohead.statistics import paired_tests
from headtohead.statistics.differences import interaction_differences, pair_differences
from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA, Difference, Paired
from headtohead.statistics.verdicts import (
    BETTER,
    EQUIVALENT,
    NO_VERDICT,
    SAME,
    UNTESTED,
    WORSE,
    Judgement,
    Verdict,
    is_undecided,
    judge,
)
from headtohead.storage.contrasts import (
    ChangeContrast,
    ContrastRecord,
    FactorContrast,
    InteractionContrast,
    VariantContrast,
)
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import counted, higher_is_better, label, show, show_p


@dataclass(frozen=True)
class Contrast:
    """A tested difference between two sides, paired by seed.

    ``kind`` is ``variant``, ``factor``, ``interaction``, ``declared``, ``added`` or ``taken``. ``axis`` is the axis of
    a factor contrast, or the name of an added or taken change. ``judgement`` holds the tests, ``reason`` a note on the
    verdict or why there is none. ``spread`` is the smallest and the largest difference among the settings that a factor
    contrast averages over. ``settings_p`` is the smallest p among them, adjusted by Holm for their number. ``within``
    lists axes that are constant in a factor's block. ``num_excluded`` counts pairs that are the same by construction
    and do not enter the average. ``late_margin``: the margin was set or changed after results existed.
    """

    kind: str
    name: str
    left: str
    right: str
    metric: str
    axis: str | None = None
    within: str = ""
    seeds: tuple[int, ...] = ()
    paired: Paired | None = None
    verdict: Verdict = NO_VERDICT
    judgement: Judgement = UNTESTED
    reason: str | None = None
    spread: tuple[float, float] | None = None
    settings_p: float = math.nan
    pairs: tuple[tuple[str, str], ...] = ()
    num_excluded: int = 0
    late_margin: bool = False

    @property
    def difference(self) -> Difference | None:
        """The difference that the verdict rests on."""
        return self.paired

    @property
    def detected(self) -> bool:
        """Whether the verdict is better or worse."""
        return self.verdict in (BETTER, WORSE)

    @property
    def is_undecided(self) -> bool:
        """Whether more seeds can give a verdict."""
        return is_undecided(self.verdict, self.difference)

    @property
    def settings_differ(self) -> bool:
        """Whether the difference in at least one averaged setting is significant."""
        return self.settings_p <= ALPHA

    @property
    def verdict_name(self) -> str:
        """The verdict; a significant interaction has no direction."""
        return "significant" if self.kind == "interaction" and self.detected else self.verdict

    @property
    def verdict_text(self) -> str:
        """The verdict, with its margin if it is equivalent."""
        equivalence = self.judgement.equivalence
        if self.verdict != EQUIVALENT or equivalence is None:
            return self.verdict_name
        return f"{self.verdict} within {show(equivalence.margin, self.metric)}{self.margin_note}"

    @property
    def margin_note(self) -> str:
        """A note if the margin was set or changed after results existed, else empty."""
        return " (margin set after results existed)" * self.late_margin


@dataclass(frozen=True)
class Family:
    """Contrasts that are corrected together; ``tested`` is their number, ``seeds`` the smallest number of seeds."""

    contrasts: tuple[Contrast, ...]
    tested: int
    seeds: int

    @property
    def floor(self) -> float:
        """The smallest Holm-adjusted sign-flip p that this number of seeds can reach."""
        return paired_tests.sign_flip_floor(self.tested, self.seeds)

    @property
    def seeds_needed(self) -> int:
        """The smallest number of seeds with which a sign-flip p can pass Holm's first step."""
        return paired_tests.seeds_needed(self.tested)


class Families(NamedTuple):
    """The contrasts by family.

    ``variants`` compares every variant with the baseline. ``factors`` compares two values of an axis, averaged
    over the other axes within each seed. ``interactions`` compares the effect of an axis between two values of
    another axis. ``declared`` has the contrasts that the experiment file declares. Between two configurations,
    ``added`` compares the first with and without every single change, ``taken`` the second.
    """

    variants: Family
    factors: Family
    interactions: Family
    declared: Family
    added: Family
    taken: Family


def families(scores: Scores) -> Families:
    """Return the contrasts of the experiment, tested with pairing by seed and adjusted by Holm within each family."""
    frames = scores.frames
    families: dict[str, list[Contrast]] = {
        kind: [] for kind in ("variant", "factor", "interaction", "declared", "added", "taken")
    }
    for declared in frames.record.contrasts:
        contrast = _untested(frames, declared, scores.metric)
        is_tested = contrast.verdict != SAME and not contrast.reason
        families[declared.kind].append(_tested(frames, contrast, scores.allow_partial) if is_tested else contrast)
    margin = frames.record.margins.get(scores.metric)
    value, late = (margin.value, margin.late) if margin else (None, False)
    return Families(*(_family(frames, family, value, late) for family in families.values()))


def _untested(frames: Frames, declared: ContrastRecord, metric: str) -> Contrast:
    """Return a contrast before its test."""
    if isinstance(declared, FactorContrast):
        return _factor(frames, declared, metric)
    if isinstance(declared, InteractionContrast):
        return _interaction(frames, declared, metric)
    axis = declared.change if isinstance(declared, ChangeContrast) else None
    left = declared.variant
    right = declared.baseline if isinstance(declared, VariantContrast) else declared.against
    contrast = Contrast(declared.kind, declared.name, left, right, metric, axis, pairs=declared.pairs)
    return contrast if distinct(frames, contrast.pairs) else replace(contrast, verdict=SAME)


def _factor(frames: Frames, declared: FactorContrast, metric: str) -> Contrast:
    pairs, axis, value, against = declared.pairs, declared.axis, declared.value, declared.against
    within = ", ".join(f"{name} {label(fixed)}" for name, fixed in declared.given.items())
    contrast = Contrast("factor", declared.name, label(value), label(against), metric, axis, within, pairs=pairs)
    if not pairs:
        return replace(contrast, reason="no two variants differ only in this axis")
    different = distinct(frames, pairs)
    if not different:
        return replace(contrast, verdict=SAME)
    return replace(contrast, pairs=different, num_excluded=len(pairs) - len(different))


def _interaction(frames: Frames, declared: InteractionContrast, metric: str) -> Contrast:
    """Return an interaction without the settings in which it is 0 by construction."""
    trained, pairs = frames.trained, declared.pairs
    settings = [
        (first, swapped)
        for first, swapped in zip(pairs[::2], pairs[1::2], strict=True)
        if sorted(map(trained, (first[0], swapped[0]))) != sorted(map(trained, (first[1], swapped[1])))
    ]
    contrast = Contrast(
        "interaction",
        declared.name,
        f"{declared.axis} {label(declared.value)}",
        f"{declared.other_axis} {label(declared.other_value)}",
        metric,
        declared.axis,
        pairs=tuple(pair for setting in settings for pair in setting),
        num_excluded=len(pairs) // 2 - len(settings),
    )
    return contrast if settings else replace(contrast, verdict=SAME)


def distinct(frames: Frames, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of variants that are not the same by construction."""
    return tuple((left, right) for left, right in pairs if frames.trained(left) != frames.trained(right))


def _tested(frames: Frames, contrast: Contrast, allow_partial: bool) -> Contrast:
    """Return the contrast with its paired test, or with the reason why there is none."""
    metric, pairs = contrast.metric, list(contrast.pairs)
    for left, right in pairs:
        mismatch = score_mismatch(frames, left, right, metric)
        if mismatch:
            return replace(contrast, reason=mismatch)
    scores = {slug: frames.scores(slug, metric) for pair in pairs for slug in pair}
    problems = {slug: reason for slug in scores if (reason := unranked(frames, slug, metric))}
    if problems and not allow_partial:
        return replace(contrast, reason=f"not ranked: {_problem_text(frames, problems)}")
    scored = [(left, right) for left, right in pairs if scores[left] and scores[right]]
    seeds, differences = pair_differences(scores, scored)
    if not scored or not seeds:
        return replace(contrast, reason=f"not ranked: {_problem_text(frames, problems)}")
    scale = max(abs(value) for slug in scores for value in scores[slug].values())
    if contrast.kind == "interaction":
        if len(scored) < len(pairs):
            return replace(contrast, reason=f"not ranked: {_problem_text(frames, problems)}")
        differences = interaction_differences(differences)
    return replace(
        contrast,
        seeds=tuple(seeds),
        pairs=tuple(scored),
        paired=paired_tests.paired_differences(differences.mean(axis=0), scale=scale),
        reason=f"partial: {_problem_text(frames, problems)}" if problems else None,
        spread=spread(differences, scale),
        settings_p=settings_p(differences, scale, frames.looks),
    )


def spread(differences: np.ndarray, scale: float) -> tuple[float, float] | None:
    """Return the smallest and largest mean over seeds of differences ``[pair, seed]``; None for a single pair."""
    if len(differences) < 2:
        return None
    means = paired_tests.rounded(differences.mean(axis=1), scale)
    return float(means.min()), float(means.max())


def settings_p(differences: np.ndarray, scale: float, looks: Looks | None = None) -> float:
    """Return the smallest p of differences ``[pair, seed]``, adjusted for the looks and the number of pairs (Holm).

    NaN for a single pair or a single seed.
    """
    if len(differences) < 2:
        return math.nan
    p_values = []
    for row in differences:
        paired = paired_tests.paired_differences(row, scale=scale)
        p_values.append(looks.adjusted(paired.p) if looks else paired.p)
    return min(paired_tests.holm(p_values))


def _problem_text(frames: Frames, problems: Mapping[str, str]) -> str:
    texts = [f"{frames.by_slug[slug].title}: {reason}" for slug, reason in problems.items()]
    more = f" and {counted(len(texts) - 2, 'more variant')}" if len(texts) > 2 else ""
    return "; ".join(texts[:2]) + more


def _family(frames: Frames, contrasts: Sequence[Contrast], margin: float | None, late_margin: bool) -> Family:
    """Judge contrasts as a family; contrasts of the same trained runs are a single test with a single verdict."""
    better = bool(contrasts) and higher_is_better(contrasts[0].metric)
    first: dict[tuple[tuple[str, str], ...], Contrast] = {}
    for contrast in contrasts:
        first.setdefault(_trained_pairs(frames, contrast), contrast)
    unique = list(first.values())
    differences = [contrast.difference for contrast in unique]
    judgements = judge(differences, margin=margin, higher_is_better=better, looks=frames.looks)
    judgement_of = dict(zip(first, judgements, strict=True))
    judged = []
    for contrast in contrasts:
        pairs = _trained_pairs(frames, contrast)
        if contrast.verdict == SAME:
            judged.append(contrast)
            continue
        judged.append(_judged(contrast, judgement_of[pairs], late_margin))
        if first[pairs] is not contrast:
            note = f"the same runs as {first[pairs].name}, counted once in the correction"
            judged[-1] = replace(judged[-1], reason="; ".join(filter(None, [judged[-1].reason, note])))
    tested = [len(contrast.seeds) for contrast in unique if _has_p(contrast)]
    return Family(tuple(judged), len(tested), min(tested, default=0))


def _trained_pairs(frames: Frames, contrast: Contrast) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a contrast with the slugs whose runs they use; contrasts without pairs are all different."""
    pairs = tuple((frames.trained(left), frames.trained(right)) for left, right in contrast.pairs)
    return pairs or ((contrast.name, ""),)


def _has_p(contrast: Contrast) -> bool:
    return contrast.paired is not None and not math.isnan(contrast.paired.p)


def _judged(contrast: Contrast, judgement: Judgement, late_margin: bool) -> Contrast:
    if contrast.difference is None:
        return contrast
    excluded = f"{contrast.num_excluded} of {contrast.num_excluded + len(contrast.pairs)} settings {SAME}, excluded"
    notes = [contrast.reason, excluded * bool(contrast.num_excluded), _note(contrast.difference, judgement)]
    return replace(
        contrast,
        verdict=judgement.verdict,
        judgement=judgement,
        reason="; ".join(filter(None, notes)) or None,
        late_margin=late_margin,
    )


def _note(result: Difference, judgement: Judgement) -> str | None:
    """Return a note on a verdict that its numbers do not explain."""
    if result.kind == "single":
        return "one seed: no test"
    if result.kind == "identical":
        return "both sides have the same score in every seed"
    if judgement.verdict == EQUIVALENT and judgement.significant:
        return f"the difference is significant (Holm p {show_p(judgement.holm_p)}) and smaller than the margin"
    if result.kind == "constant":
        return f"{_CONSTANT}; there are too few seeds for a verdict" * (judgement.verdict == NO_VERDICT) or _CONSTANT
    return None


_CONSTANT = (
    "the difference is the same in every seed: the interval is a point, the t-test is undefined "
    "and the sign-flip p replaces it"
)
