"""Judge the contrasts of an experiment: variants, axis values, the file's own, changes between two configurations.

The contrasts of a family have simultaneous 95 % intervals, one for each difference, and every verdict is read off its
interval. A contrast that cannot be tested has a reason and is not counted in its family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from headtohead.analysis.agreement import (
    UNTESTED_AGREEMENT,
    Agreement,
    agreement,
    agreement_of_zero,
)
from headtohead.analysis.scores import Scores, missing_scores, score_mismatch, scores_of
from headtohead.config.labels import listed
from headtohead.schema.experiment_file import Expectation
from headtohead.storage.contrasts import BALANCED, ContrastRecord
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import (
    counted,
    decimals_of,
    higher_is_better,
    is_at_end,
    readable,
    show,
)
from headtohead_judge.contrast import Contrast, Estimate, Setting, Side, estimate_family, with_sign
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import Difference, level_of_each
from headtohead_judge.verdicts import (
    BY_LESS,
    CANNOT_TELL,
    DETECTED,
    NO_VERDICT,
    NOT_SHOWN,
    SAME,
    UNTESTED,
    Direction,
    Judgement,
    Size,
    is_tested,
    judge,
    unlike_paired_tests,
)

NOTES = {
    "single": "one seed: no test",
    "identical": "both sides have the same score in every seed",
    "constant": "the difference is the same in every seed: the interval is a point, p is that of the sign-flip test",
}
"""Notes on verdicts that their numbers do not explain, by the kind of the difference."""

FAMILIES = ("variant", "factor", "interaction", "declared", "added", "taken")
"""The families of contrasts, in the order of `Families`."""

AT_END = "every score is {ends}"
EXCLUDED = "{number} of {total} settings {verdict}, excluded"
MAX_NAMED = 2
"""Maximum number of variants without a score that the reason for a missing test names."""


class SettingResult(NamedTuple):
    """The difference in one setting of an average, judged among all settings of the contrast."""

    setting: Setting
    difference: Difference
    judgement: Judgement

    @property
    def variant(self) -> str:
        """The variant with a positive weight."""
        return with_sign(self.setting, 1.0)[0].variant


@dataclass(frozen=True)
class ContrastResult:
    """A contrast with its estimate and verdict, paired by seed.

    Attributes:
        record: The contrast as planned.
        contrast: The settings that are tested, with the variants as reported.
        trained: The same settings with the variants that have the runs.
        num_excluded: Number of settings that are the same by construction and do not enter the average.
        is_at_end: Whether all scores are the lowest or highest possible ones, and equal in every seed.
        estimate: The difference, also by seed and by setting; None without a test.
        judgement: The verdict.
        is_unlike_paired_test: Whether the paired t-test, corrected alike, disagrees on whether there is a difference.
        level: 1 minus the confidence of the interval of ``judgement``; NaN without a test.
        untested: Why there is no test; empty with a test.
        notes: Notes on the verdict.
        setting_judgements: The verdict of each setting of an average; the settings are a family of their own.
        late_margin: Whether the margin was set or changed after results existed.
        judged_as: The family of the contrast of the same difference that ``judgement`` is from.
    """

    record: ContrastRecord
    contrast: Contrast
    trained: Contrast
    num_excluded: int = 0
    is_at_end: bool = False
    estimate: Estimate | None = None
    judgement: Judgement = UNTESTED
    is_unlike_paired_test: bool = False
    level: float = math.nan
    untested: str = ""
    notes: tuple[str, ...] = ()
    setting_judgements: tuple[Judgement, ...] = ()
    late_margin: bool = False
    judged_as: str = ""

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.record.name

    @property
    def family(self) -> str:
        """The family with which the contrast is judged."""
        return self.record.family

    @property
    def metric(self) -> str:
        """The metric, of a contrast of two metrics that of the variant with a positive weight."""
        return self.contrast.metrics[0]

    @property
    def variant(self) -> str:
        """The slug of the variant with a positive weight, in the first setting."""
        return self.record.variant

    @property
    def against(self) -> str:
        """The slug of the variant with a negative weight, in the first setting."""
        return self.record.against

    @property
    def variants(self) -> list[str]:
        """The slugs of all variants of the tested settings."""
        return list(dict.fromkeys(side.variant for side in self.contrast.sides))

    @property
    def references(self) -> list[str]:
        """The slugs of the variants with a negative weight, once for each setting."""
        return [side.variant for side in self.contrast.sides_with(-1.0)]

    @property
    def others(self) -> list[str]:
        """The slugs of the variants with a positive weight, once for each setting."""
        return [side.variant for side in self.contrast.sides_with(1.0)]

    @property
    def axis(self) -> str | None:
        """The axis of a factor contrast, the name of a change, or the first axis of an interaction; None for others."""
        return self.record.effects[0].axis if self.record.effects else None

    @property
    def is_testable(self) -> bool:
        """Whether the contrast has scores and is not 0 by construction."""
        return not self.untested and self.direction != SAME

    @property
    def paired(self) -> Difference | None:
        """The mean difference over seeds with its tests; None without a test."""
        return self.estimate.difference if self.estimate else None

    @property
    def source_names(self) -> list[str]:
        """The names of the sources of variance in the interval, the training seeds first; empty without a test."""
        return [source.name for source in self.paired.sources] if self.paired else []

    @property
    def by_seed(self) -> Mapping[int, float]:
        """The difference of each seed; empty without a test."""
        return self.estimate.by_seed if self.estimate else {}

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the test."""
        return tuple(self.by_seed)

    @property
    def settings(self) -> list[SettingResult]:
        """The results of the settings of an average; empty for a single setting and without a test."""
        if self.estimate is None or not self.estimate.settings:
            return []
        results = zip(
            self.contrast.settings, self.estimate.settings, self.setting_judgements, strict=True
        )
        return [SettingResult(*result) for result in results]

    @property
    def reason(self) -> str | None:
        """Why there is no test, or notes on the verdict; None without any."""
        return self.untested or "; ".join(self.notes) or None

    @property
    def expect(self) -> Expectation | None:
        """The expected result."""
        return self.record.expect

    @property
    def agreement(self) -> Agreement | None:
        """Whether the difference is as expected; None without an expected result."""
        if self.expect is None:
            return None
        if self.direction == SAME:
            return agreement_of_zero(self.expect)
        if self.paired is None:
            return UNTESTED_AGREEMENT
        return agreement(self.expect, self.judgement.interval)

    @property
    def expected(self) -> str:
        """The expected result as text, such as ``higher by more than 2 (published +13.3)``; empty without any."""
        if self.expect is None:
            return ""
        expected: str = self.expect.direction
        if self.expect.by:
            size = "to within" if self.expect.direction == "equal" else "by more than"
            expected += f" {size} {self.expect.by:g}"
        if self.expect.published is None:
            return expected
        return f"{expected} (published {self.expect.published:+g})".replace("-", "−")

    @property
    def direction(self) -> Direction:
        """The first words of the verdict."""
        return self.judgement.direction

    @property
    def size(self) -> Size | None:
        """Whether a detected difference is larger or smaller than the margin; None if neither is shown."""
        return self.judgement.size

    @property
    def verdict(self) -> str:
        """The verdict as pages print it: the direction, and *by less than the margin* if that is shown.

        Whether a difference is larger than the margin is in its interval.
        """
        return self.judgement.verdict if self.size == BY_LESS else self.direction

    @property
    def detected(self) -> bool:
        """Whether the interval excludes 0."""
        return self.direction in DETECTED

    @property
    def is_within_margin(self) -> bool:
        """Whether the interval lies within the margin."""
        return self.judgement.is_within_margin

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a positive difference is better; None for interactions, two metrics, and effects of masking heads."""
        is_quality = not self.metric.startswith("heads/") and len(self.contrast.metrics) == 1
        if self.family == "interaction" or not is_quality:
            return None
        return higher_is_better(self.metric)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The smallest and the largest difference among the settings, or None for a single one."""
        means = [setting.difference.mean for setting in self.settings]
        return (min(means), max(means)) if means else None

    @property
    def is_undecided(self) -> bool:
        """Whether more seeds can give a verdict."""
        if self.direction == NOT_SHOWN:
            return True
        is_constant = self.paired is not None and self.paired.kind == "constant"
        return is_constant and self.direction == NO_VERDICT

    @property
    def margin_text(self) -> str:
        """The margin, labelled if it was set or changed late; empty without a margin."""
        margin = self.judgement.margin
        if not margin:
            return ""
        shown = show(margin, self.metric, like=margin)
        return f"{shown} (margin set after results existed)" if self.late_margin else shown

    @property
    def scale(self) -> float:
        """The margin or the expected difference, of which numbers have at least the decimals; 0 without both."""
        numbers = [0.0]
        if self.judgement.margin:
            numbers.append(self.judgement.margin)
        if self.expect:
            numbers.append(self.expect.by)
        return max(numbers, key=decimals_of)

    @property
    def difference_text(self) -> str:
        """The difference with its sign; a dash without a test."""
        mean = self.paired.mean if self.paired else None
        return show(mean, self.metric, signed=True, like=self.scale)


@dataclass(frozen=True)
class Family:
    """Contrasts with simultaneous intervals; ``tested`` is the number of differences that have one."""

    contrasts: tuple[ContrastResult, ...]
    tested: int


class Families(NamedTuple):
    """The contrasts of an experiment, with simultaneous intervals within each family.

    Attributes:
        variants: Every variant against the baseline.
        factors: Two values of an axis, averaged over the other axes within each seed.
        interactions: The effect of an axis, compared between two values of another axis.
        declared: The contrasts that the experiment file declares, optionally with a metric and an expected result.
        added: The first of two configurations with and without every single change.
        taken: The second of two configurations with and without every single change.
    """

    variants: Family
    factors: Family
    interactions: Family
    declared: Family
    added: Family
    taken: Family

    def tested(self, family: str) -> int:
        """Return the number of differences of a family that have an interval."""
        return self[FAMILIES.index(family)].tested

    def variance_ratio(self, family: str) -> float:
        """Return the mean variance of the contrasts of a family per squared weight, divided by the residual variance.

        Of several models, for example of several metrics, the largest ratio; NaN without a model.
        """
        ratios = []
        for contrast in self[FAMILIES.index(family)].contrasts:
            model = contrast.estimate.model if contrast.estimate else None
            if model is not None and math.isfinite(model.ratio):
                ratios.append(model.ratio)
        return max(ratios, default=math.nan)


def families(scores: Scores) -> Families:
    """Return the contrasts of the experiment, paired by seed, with simultaneous intervals within each family.

    No difference has two verdicts: a difference of several families has the verdict of the first of them, declared
    contrasts before factors before all others.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    planned = [_planned(scores, record) for record in scores.frames.record.contrasts]
    judged = []
    for name in FAMILIES:
        members = [result for result in planned if result.family == name]
        judged.append(_judged_family(scores, _estimated(scores, members)))
    by_family = Families(*judged)
    first_of: dict[object, ContrastResult] = {}
    for family in (by_family.declared, by_family.factors, *by_family):
        for result in family.contrasts:
            if result.estimate is not None:
                first_of.setdefault(result.trained.key, result)
    one_verdict = [_with_first_verdicts(family, first_of) for family in by_family]
    return Families(*one_verdict)


def _planned(scores: Scores, record: ContrastRecord) -> ContrastResult:
    """Return a contrast before its estimate, without the settings that are 0 by construction.

    If all settings are 0 by construction, its verdict is `SAME`. Otherwise the result is that of
    `_with_scored_settings` for the remaining ones.
    """
    contrast = record.contrast(scores.metric)
    trained = contrast.of_trained(scores.frames.trained)
    kept = []
    for setting, trained_setting in zip(contrast.settings, trained.settings, strict=True):
        if trained_setting:
            kept.append(setting)
    if not kept:
        return ContrastResult(record, contrast, trained, judgement=Judgement(SAME))
    contrast = contrast.with_settings(kept)
    num_excluded = len(trained.settings) - len(kept)
    return _with_scored_settings(
        scores, ContrastResult(record, contrast, trained.without_empty_settings(), num_excluded)
    )


def _with_scored_settings(scores: Scores, planned: ContrastResult) -> ContrastResult:
    """Return a contrast of the settings with scores of all sides, or with the reason why it has no test.

    With a test, settings at an end of the metric (`_is_at_end`) are left out, unless all are. The notes name missing
    scores, collapsed runs, and settings at an end.
    """
    contrast = planned.contrast
    missing: dict[str, str] = {}  # the reason by variant
    unscored: set[Side] = set()
    for side in contrast.sides:
        by_seed = scores_of(scores.frames, side)
        reason = missing_scores(scores.frames, side, by_seed)
        if reason:
            missing[side.variant] = reason
        if not by_seed:
            unscored.add(side)
    scored = [setting for setting in contrast.settings if not unscored.intersection(setting)]
    tested = contrast.with_settings(scored)
    collapsed = _collapsed_text(scores, contrast)
    untested = _why_untested(scores, contrast, tested, missing, collapsed)
    if untested:
        return replace(planned, untested=untested)

    notes = []
    if missing:
        notes.append(f"partial: {_missing_text(scores, missing)}")
    if collapsed:
        notes.append(collapsed)
    contrasts_within_range = [
        single for single in tested.single_settings() if not _is_at_end(scores, single)
    ]
    num_at_end = len(tested.settings) - len(contrasts_within_range)
    is_at_end = not contrasts_within_range
    if is_at_end:
        notes.append(AT_END.format(ends=_ends_text(scores, tested)))
    elif num_at_end:
        total = len(tested.settings)
        notes.append(EXCLUDED.format(number=num_at_end, total=total, verdict=CANNOT_TELL))
        tested = tested.with_settings([single.settings[0] for single in contrasts_within_range])
    return replace(
        planned,
        contrast=tested,
        trained=tested.of_trained(scores.frames.trained),
        is_at_end=is_at_end,
        notes=tuple(notes),
    )


def _why_untested(
    scores: Scores, contrast: Contrast, scored: Contrast, missing: Mapping[str, str], collapsed: str
) -> str:
    """Return why a contrast has no test; empty if it has one. The first reason that applies is returned.

    Args:
        scores: The scores of the study.
        contrast: The contrast with all settings.
        scored: The contrast of the settings with scores of all sides.
        missing: Why a variant lacks scores in seeds of the study, by slug.
        collapsed: The text on collapsed runs; empty without any.
    """
    mismatch = _mismatch(scores, contrast)
    if mismatch:
        return mismatch
    if missing and not scores.allow_partial:
        return _unscored_text(scores, missing)
    if not scores.shared_seeds(scored.sides):
        return _unscored_text(scores, missing) or collapsed
    return ""


def _is_at_end(scores: Scores, contrast: Contrast) -> bool:
    """Return whether every score of a contrast is the lowest or highest possible one, and each seed's difference is 0.

    Only seeds in which all sides have a score of a healthy run count; False without any. Such a contrast compares
    nothing: both sides would have these scores on a task that is much too hard or too easy.
    """
    by_side = {side: scores.healthy(side) for side in contrast.sides}
    seeds, values = contrast.values(by_side)
    if not seeds or values.any():
        return False
    return all(is_at_end(side.metric, by_side[side][seed]) for side in by_side for seed in seeds)


def _ends_text(scores: Scores, contrast: Contrast) -> str:
    """Return the scores of a contrast, all of which are ends of its metric: ``0.000``, or ``0.000 or 1.000``."""
    texts: set[str] = set()
    for side in contrast.sides:
        texts.update(show(score, side.metric) for score in scores.healthy(side).values())
    return " or ".join(sorted(texts))


def _missing_text(scores: Scores, missing: Mapping[str, str]) -> str:
    """Return the titles of variants with their reasons, at most `MAX_NAMED`; ``missing`` has the reason by slug."""
    texts = []
    for slug, reason in missing.items():
        texts.append(f"{scores.frames.by_slug[slug].title}: {reason}")
    shown = "; ".join(texts[:MAX_NAMED])
    if len(texts) <= MAX_NAMED:
        return shown
    return f"{shown} and {counted(len(texts) - MAX_NAMED, 'more variant')}"


def _unscored_text(scores: Scores, missing: Mapping[str, str]) -> str:
    """Return why a contrast with missing scores has no test; empty without missing scores."""
    if not missing:
        return ""
    metrics = [readable(scores.judged_on[slug]) for slug in missing if slug in scores.judged_on]
    if metrics:
        return f"judged on {listed(list(dict.fromkeys(metrics)))}"
    return f"not ranked: {_missing_text(scores, missing)}"


def _collapsed_text(scores: Scores, contrast: Contrast) -> str:
    """Return which variants have collapsed runs, whose seeds do not count; empty without any."""
    frames = scores.frames
    trained = {frames.trained(side.variant) for side in contrast.sides}
    slugs = sorted(trained.intersection(scores.collapsed))
    if not slugs:
        return ""
    titles = [frames.by_slug[slug].title for slug in slugs]
    return f"without the seeds of collapsed runs of {listed(titles, most=3)}"


def _mismatch(scores: Scores, contrast: Contrast) -> str:
    """Return why the scores of a contrast cannot be compared; empty if they can.

    The weights of comparable variants must add up to 0 in every setting: the differences within one data set can be
    compared with those within another. The reason is that of the first setting and its first two groups that violate
    this. Scores count as those of the first metric of the contrast.
    """
    metric = contrast.metrics[0]
    for setting in contrast.settings:
        weight_of_group: dict[str, float] = {}
        for group in _comparable_groups(scores.frames, setting, metric):
            weight_of_group[group[0].variant] = sum(setting[side] for side in group)
        unbalanced = [slug for slug, weight in weight_of_group.items() if abs(weight) > BALANCED]
        # All weights of a setting add up to 0, so a group is never unbalanced alone.
        if len(unbalanced) > 1:
            first, second, *_ = unbalanced
            return score_mismatch(scores.frames, first, second, metric) or ""
    return ""


def _comparable_groups(frames: Frames, sides: Iterable[Side], metric: str) -> list[list[Side]]:
    """Return the sides in groups; the scores of each are comparable with those of the first of its group."""
    groups: list[list[Side]] = []
    for side in sides:
        for group in groups:
            if score_mismatch(frames, group[0].variant, side.variant, metric) is None:
                group.append(side)
                break
        else:
            groups.append([side])
    return groups


def _estimated(scores: Scores, family: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return the contrasts of a family with their estimates, and with the verdicts of their settings.

    Contrasts of the same metric and lengths are estimated together. Contrasts that cannot be tested are unchanged.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    indices_of: dict[object, list[int]] = {}
    for index, result in enumerate(family):
        if result.is_testable:
            kinds = result.trained.score_kinds
            # A contrast of several kinds of scores is estimated alone.
            group: object = kinds if len(kinds) == 1 else index
            indices_of.setdefault(group, []).append(index)
    results = list(family)
    for indices in indices_of.values():
        contrasts = [family[index].trained for index in indices]
        table = scores.table(contrasts[0].sides)
        estimates = estimate_family(contrasts, table)
        for index, estimate in zip(indices, estimates, strict=True):
            results[index] = _with_estimate(scores, family[index], estimate)
    return results


def _with_estimate(scores: Scores, result: ContrastResult, estimate: Estimate) -> ContrastResult:
    """Return a contrast with its estimate and the verdicts of its settings.

    The settings of an average are judged as a family of their own; a contrast of a single setting has no such verdicts.
    """
    judgements: list[Judgement] = []
    if estimate.settings:
        settings = result.contrast.single_settings()
        margins = []
        for setting in settings:
            references = [side.variant for side in setting.sides_with(-1.0)]
            others = [side.variant for side in setting.sides_with(1.0)]
            margins.append(scores.margin(result.metric, references, others))
        judgements = judge(
            estimate.settings,
            margin=margins,
            higher_is_better=[result.higher_is_better] * len(settings),
            looks=scores.frames.looks,
        )
    return replace(result, estimate=estimate, setting_judgements=tuple(judgements))


def _judged_family(scores: Scores, family: Sequence[ContrastResult]) -> Family:
    """Judge contrasts as a family; contrasts of the same difference are counted once and have a single verdict.

    The verdict has the opposite sign for a contrast that exchanges the two sides of the first one. A contrast whose
    scores are all at an end of the metric has the verdict `CANNOT_TELL`. A contrast without a test is returned
    unchanged and not counted. The margin of a contrast is `Scores.margin`.
    """
    index_of: dict[object, int] = {}
    distinct: list[ContrastResult] = []  # the first contrast of each difference
    differences: list[Difference] = []
    for result in family:
        if result.paired is not None and result.trained.key not in index_of:
            index_of[result.trained.key] = len(distinct)
            distinct.append(result)
            differences.append(result.paired)

    margins = [scores.margin(first.metric, first.references, first.others) for first in distinct]
    directions = [first.higher_is_better for first in distinct]
    looks = scores.frames.looks or Looks.single()
    judgements = judge(differences, margin=margins, higher_is_better=directions, looks=looks)
    for index, first in enumerate(distinct):
        if first.is_at_end:
            judgements[index] = Judgement(CANNOT_TELL, margin=margins[index])
    is_unlike = unlike_paired_tests(differences, judgements, looks=looks)
    num_tested = sum(map(is_tested, differences))
    level = looks.level(level_of_each(num_tested))

    judged = []
    for result in family:
        if result.paired is None:
            judged.append(result)
            continue
        index = index_of[result.trained.key]
        first = distinct[index]
        sign = result.trained.sign * first.trained.sign  # −1 if the two exchange their sides
        margin_record = scores.frames.record.margins.get(result.metric)
        judged.append(
            replace(
                result,
                judgement=judgements[index].signed(sign),
                is_unlike_paired_test=is_unlike[index],
                level=level,
                notes=_notes(result, first),
                late_margin=margin_record is not None and margin_record.late,
            )
        )
    return Family(tuple(judged), num_tested)


def _notes(result: ContrastResult, first: ContrastResult) -> tuple[str, ...]:
    """Return the notes on a contrast with a test, those that it has already first.

    Further notes are on settings that are 0 by construction, on a difference of a kind in ``NOTES`` unless all scores
    are at an end of the metric, and on ``first``, the first contrast of the same difference, if that is another one.
    """
    notes = list(result.notes)
    if result.num_excluded:
        total = result.num_excluded + len(result.contrast.settings)
        excluded = EXCLUDED.format(number=result.num_excluded, total=total, verdict=SAME)
        notes.append(excluded)
    if result.paired is not None and result.paired.kind in NOTES and not result.is_at_end:
        notes.append(NOTES[result.paired.kind])
    if first is not result:
        notes.append(f"the same runs as {first.name}, counted once")
    return tuple(notes)


def _with_first_verdicts(family: Family, first_of: Mapping[object, ContrastResult]) -> Family:
    """Return a family in which every tested contrast has the test of the first contrast of the same difference.

    The test is the difference of its estimate, its judgement, its level, and whether the paired t-test disagrees;
    ``judged_as`` is the family of the first contrast. The signs are changed if the first contrast has the two sides
    exchanged. Contrasts without a test are unchanged. A constant difference without a verdict gets a note.

    Args:
        family: Judged contrasts.
        first_of: The first contrast by ``trained.key``; it has the key of every tested contrast.

    Raises:
        KeyError: If ``first_of`` lacks such a key.
    """
    results = []
    for result in family.contrasts:
        if result.paired is None:
            results.append(result)
            continue
        first = first_of[result.trained.key]
        sign = first.trained.sign * result.trained.sign
        judgement = first.judgement.signed(sign)
        notes = result.notes
        if result.paired.kind == "constant" and judgement.direction == NO_VERDICT:
            notes = (*notes, "there are too few seeds for a verdict")
        results.append(
            replace(
                result,
                estimate=_with_difference(result.estimate, first.paired, sign),
                judgement=judgement,
                is_unlike_paired_test=first.is_unlike_paired_test,
                level=first.level,
                notes=notes,
                judged_as=first.family,
            )
        )
    return replace(family, contrasts=tuple(results))


def _with_difference(
    estimate: Estimate | None, difference: Difference | None, sign: float
) -> Estimate | None:
    """Return an estimate with the difference of another contrast; a negative ``sign`` exchanges its sides."""
    if estimate is None or difference is None:
        return estimate
    signed = replace(difference, mean=sign * difference.mean, effect=sign * difference.effect)
    return replace(estimate, difference=signed)
