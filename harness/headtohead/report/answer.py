"""The answer of a report: plain sentences, written from the verdicts of the main contrasts.

Each contrast is in one sentence, which depends on its verdict. "Rises" and "falls" require the verdict better or
worse, "smaller than" the verdict equivalent; all other tested contrasts show no difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.scores import OTHER_DATA
from headtohead.analysis.study import Analysis, SeparateEffects
from headtohead.config.labels import NAMED_AXES, listed
from headtohead.planning.axes import DATA_AXIS
from headtohead.report.two_way import two_way_answer
from headtohead.statistics.paired_tests import CONFIDENCE, Interval
from headtohead.statistics.verdicts import EQUIVALENT, IDENTICAL, INCONCLUSIVE, SAME
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.metrics import counted, higher_is_better, label, readable, show
from headtohead.storage.states import RESULTS

MOST_EFFECTS = 3
"""Maximum number of better or worse contrasts that have a clause of their own."""

MOST_NAMES = 4
"""Maximum number of values, pairs of values or single effects that a clause names."""

WITHOUT = {"positional": "positional encoding", "match": "matched parameters"}
"""Axes with a value ``none`` that is the absence of something."""


def answer(analysis: Analysis) -> str:
    """Return the answer to the experiment's question, or why there is none; published claims come first."""
    contrasts = analysis.main_contrasts
    if all(contrast.paired is None for contrast in contrasts):
        return _nothing_to_compare(analysis)
    opening = "On the finished seeds: " if analysis.allow_partial and analysis.unranked else ""
    opening += expected_counts(contrasts)
    if contrasts[-1].kind in ("declared", "added", "taken"):
        return opening + " ".join(_sentences(analysis, contrasts))
    if grid := two_way_answer(analysis):
        return opening + grid
    if analysis.factors.contrasts and contrasts[0].kind != "factor":
        opening += "No axis could be tested over all settings. "
    return opening + " ".join(_sentences(analysis, contrasts))


@dataclass(frozen=True)
class SideNames:
    """The names of the two sides of a contrast.

    ``axis`` is an axis name to print before the first value, or empty. ``within`` names axes that are constant.
    """

    axis: str
    left: str
    right: str
    within: str = ""

    def instead(self) -> str:
        """Return the change from right to left, such as ``with rotary instead of sinusoidal``."""
        change = self.change()
        return change.replace("no ", "without ", 1) if self._is_absence else f"with {change}"

    def change(self) -> str:
        """Return the change from right to left as a noun, such as ``rotary instead of sinusoidal``."""
        if self._is_absence:
            return f"no {WITHOUT[self.axis]}{self.within}"
        return f"{self.named(self.left)} instead of {self.right}{self.within}"

    @property
    def _is_absence(self) -> bool:
        return self.left == "none" and self.axis in WITHOUT

    def both(self) -> str:
        """Return the names of both sides."""
        return f"{self.named(self.right)} and {self.left}{self.within}"

    def named(self, value: str) -> str:
        """Return a value with the name of its axis, if it needs one."""
        return value if self.axis in ("", *NAMED_AXES) else f"{self.axis} {value}"


def sides(analysis: Analysis, contrast: Contrast) -> SideNames:
    """Return the names of the sides of a contrast: the values in which they differ."""
    if contrast.kind == "factor":
        condition = contrast.within or _own_condition(analysis, contrast)
        return SideNames(str(contrast.axis), contrast.left, contrast.right, f" ({condition})" if condition else "")
    by_slug = analysis.frames.by_slug
    variant, other, baseline = (by_slug[slug] for slug in (contrast.left, contrast.right, analysis.frames.baseline))
    changed = [axis for axis, value in variant.axes.items() if value != other.axes.get(axis)]
    right = "the baseline" if other is baseline else other.title
    constant = {axis: value for axis, value in other.axes.items() if axis not in changed}
    given = [label(value) for axis, value in constant.items() if axis == DATA_AXIS or value != baseline.axes[axis]]
    own = _own_name(contrast, variant, other)
    given += own
    named = f" ({own[0]})" if own else ""
    within = f" ({', '.join(given)})" if given else ""
    if contrast.kind in ("added", "taken"):
        axis, where = str(contrast.axis), other.title if contrast.kind == "added" else variant.title
        return SideNames(axis, label(variant.axes[axis]), label(other.axes[axis]), f" in {where}")
    if contrast.kind == "variant" and any(factor.paired for factor in analysis.factors.contrasts):
        return SideNames("", variant.title, right)
    if len(changed) == 1:
        axis = changed[0]
        return SideNames(axis, label(variant.axes[axis]), label(other.axes.get(axis)), within)
    if 1 < len(changed) < len(other.axes):
        names = (SideNames(axis, "", "").named(label(variant.axes[axis])) for axis in changed)
        return SideNames("", " + ".join(names), right, named)
    return SideNames("", variant.title, other.title, named)


def _own_name(contrast: Contrast, variant: VariantRecord, other: VariantRecord) -> list[str]:
    """Return the name that the file gives a declared contrast, if it does."""
    has_name = contrast.kind == "declared" and contrast.name != f"{variant.title} − {other.title}"
    return [contrast.name] if has_name else []


def _own_condition(analysis: Analysis, contrast: Contrast) -> str:
    """Return the values of the axes that are constant in a factor contrast and not in another of the same values."""
    key = (contrast.axis, contrast.left, contrast.right)
    if all((other.axis, other.left, other.right) != key or not other.within for other in analysis.factors.contrasts):
        return ""
    variants = [analysis.frames.by_slug[slug].axes for pair in contrast.pairs for slug in pair]
    everywhere = [variant.axes for variant in analysis.frames.by_slug.values()]
    constant = {
        axis: value
        for axis, value in variants[0].items()
        if axis != contrast.axis
        and all(axes.get(axis) == value for axes in variants)
        and any(axes.get(axis) != value for axes in everywhere)
    }
    return ", ".join(f"{axis} {label(value)}" for axis, value in constant.items())


def _sentences(analysis: Analysis, contrasts: Sequence[Contrast]) -> list[str]:
    """Return a sentence for each kind of verdict, large effects first."""
    metrics = dict.fromkeys(contrast.metric for contrast in contrasts)
    if len(metrics) > 1:
        by_metric = [[contrast for contrast in contrasts if contrast.metric == metric] for metric in metrics]
        return [sentence for group in by_metric for sentence in _sentences(analysis, group)]
    parts = [contrast for contrast in contrasts if contrast.compares_parts]
    if parts:
        others = [contrast for contrast in contrasts if not contrast.compares_parts]
        return [*map(_part, parts), *(_sentences(analysis, others) if others else [])]
    by_size = sorted(contrasts, key=lambda contrast: -abs(contrast.paired.mean) if contrast.paired else 0.0)
    groups: dict[Callable[[Analysis, list[Contrast]], str], list[Contrast]] = {
        _detected: [],
        _dependent: [],
        _mixed: [],
        _equivalent: [],
        _inconclusive: [],
        _identical: [],
        _same: [],
        _untested: [],
        _unranked: [],
    }
    for contrast in by_size:
        groups[_sentence_of(analysis, contrast)].append(contrast)
    stated = {id(contrast) for contrast, _ in _one_side(analysis, groups[_dependent])}
    groups[_equivalent] += [
        contrast
        for contrast in groups[_dependent]
        if id(contrast) not in stated and contrast.verdict == EQUIVALENT and not _exceeds_margin(contrast)
    ]
    if _largest(analysis, groups[_dependent]) > _largest(analysis, groups[_detected]):
        groups = {_dependent: groups[_dependent], **groups}
    return [_capital(sentence(analysis, group)) for sentence, group in groups.items() if group]


def _part(contrast: Contrast) -> str:
    """Return the difference of a contrast that compares some lengths only, or two metrics."""
    if contrast.paired is None:
        return f"{contrast.name}: {contrast.reason}."
    mean = show(contrast.paired.mean, contrast.metric, signed=True)
    return f"{contrast.name}: {mean} {readable(contrast.metric)}, {contrast.verdict_text}."


def _largest(analysis: Analysis, contrasts: Sequence[Contrast]) -> float:
    """Return the size of the largest effect, of effects that depend on another axis by its value."""
    sizes = [abs(contrast.paired.mean) for contrast in contrasts if contrast.paired]
    for contrast in contrasts:
        if separate := analysis.separate_effects(contrast):
            sizes += [abs(effect.mean) for effect in separate.effects.values()]
    return max(sizes, default=0.0)


def _sentence_of(analysis: Analysis, contrast: Contrast) -> Callable[[Analysis, list[Contrast]], str]:
    if contrast.verdict == SAME:
        return _same
    if contrast.paired is None:
        return _unranked
    if analysis.separate_effects(contrast):
        return _dependent
    if contrast.detected:
        return _detected
    if analysis.settings_contradict(contrast) or _exceeds_margin(contrast):
        return _mixed
    return {EQUIVALENT: _equivalent, INCONCLUSIVE: _inconclusive, IDENTICAL: _identical}.get(
        contrast.verdict, _untested
    )


def _detected(analysis: Analysis, contrasts: list[Contrast]) -> str:
    """Return the scores of both sides of the largest effects, and the other effects by direction."""
    metric = readable(contrasts[0].metric)
    clauses: list[str] = []
    for contrast in contrasts[:MOST_EFFECTS]:
        subject = "it" if clauses else metric
        label = "" if clauses else "95 % interval "
        clauses.append(f"{sides(analysis, contrast).instead()}, {subject} {_change(analysis, contrast, label)}")
    rest: dict[tuple[str, str], list[Contrast]] = {}
    for contrast in contrasts[MOST_EFFECTS:]:
        both = sides(analysis, contrast)
        rest.setdefault((both.axis, f"{contrast.verdict} than {both.right}{both.within}"), []).append(contrast)
    for (_, verdict), group in rest.items():
        first, *others = (sides(analysis, contrast) for contrast in group)
        names = [first.named(first.left), *(other.left for other in others)]
        size = ""
        if len(group) <= MOST_NAMES:
            names = [f"{name} ({_difference(contrast)})" for name, contrast in zip(names, group, strict=True)]
        else:
            sizes = [abs(contrast.paired.mean) for contrast in group if contrast.paired]
            ends = dict.fromkeys(show(end, group[0].metric) for end in (min(sizes), max(sizes)))
            size = f" (by {' to '.join(ends)})"
        clauses.append(f"{_listed(names)} {'are' if others else 'is'} {verdict}{size}")
    averaged = " These are means over the other axes" if any(len(contrast.pairs) > 1 for contrast in contrasts) else ""
    if averaged and any(contrast.num_excluded for contrast in contrasts):
        averaged += ", without settings that are the same by construction"
    return "; ".join(clauses) + "." + averaged + "." * bool(averaged)


def _difference(contrast: Contrast) -> str:
    """Return the mean difference with its 95 % interval."""
    assert contrast.paired is not None
    mean = show(contrast.paired.mean, contrast.metric, signed=True)
    return f"{mean}; {_ends(contrast.paired.low, contrast.paired.high, contrast.metric)}"


def _change(analysis: Analysis, contrast: Contrast, level: str) -> str:
    """Return the scores of both sides with the 95 % interval of the difference, after the text ``level``."""
    assert contrast.paired is not None
    metric, mean = contrast.metric, contrast.paired.mean
    left, right = (show(score, metric) for score in scores_of_sides(analysis, contrast))
    verb = "rises" if mean > 0 else "falls"
    change = f"by {show(abs(mean), metric)} at {right}" if left == right else f"from {right} to {left}"
    margin = analysis.frames.record.margins.get(metric)
    notes = [
        "" if higher_is_better(metric) else contrast.verdict,
        level + _ends(contrast.paired.low, contrast.paired.high, metric),
        f"below the margin of {show(margin.value, metric)}" if margin is not None and abs(mean) < margin.value else "",
    ]
    note = "; ".join(filter(None, notes))
    return f"{verb} {change}{f' ({note})' if note else ''}{_direction_warning(contrast, analysis)}"


def scores_of_sides(analysis: Analysis, contrast: Contrast) -> tuple[float, float]:
    """Return the mean scores of the left and of the right side, over the pairs and seeds of a contrast."""

    def mean(slugs: Iterable[str]) -> float:
        scores = [analysis.frames.scores(slug, contrast.metric) for slug in slugs]
        return fmean(by_seed[seed] for by_seed in scores for seed in contrast.seeds)

    return mean(left for left, _ in contrast.pairs), mean(right for _, right in contrast.pairs)


def _direction_warning(contrast: Contrast, analysis: Analysis) -> str:
    """Return a warning if the direction of a factor effect depends on the setting."""
    if contrast.spread is None or contrast.paired is None:
        return ""
    low, high = contrast.spread
    opposite = -low if contrast.paired.mean > 0 else high
    if math.isnan(analysis.baseline_sd) or opposite <= analysis.baseline_sd:
        return ""
    return f", but not in every setting ({_range(contrast)})"


def _dependent(analysis: Analysis, contrasts: list[Contrast]) -> str:
    """Return the effects that depend on another axis, by value of that axis; each interaction from one side only."""
    clauses = [
        f"the effect of {sides(analysis, contrast).change()} {_separate(analysis, separate, contrast.metric)}"
        for contrast, separate in _one_side(analysis, contrasts)
    ]
    more = len(clauses) - MOST_NAMES
    rest = [f"{counted(more, 'more effect')} depend{'s' * (more == 1)} on another axis"] if more > 0 else []
    return "; ".join([*clauses[:MOST_NAMES], *rest]) + "."


def _one_side(analysis: Analysis, contrasts: Sequence[Contrast]) -> list[tuple[Contrast, SeparateEffects]]:
    """Return the contrasts that depend on another axis, without those whose interaction a larger effect states."""
    found = [(contrast, effects) for contrast in contrasts if (effects := analysis.separate_effects(contrast))]
    found.sort(key=lambda pair: -max(abs(effect.mean) for effect in pair[1].effects.values()))
    kept: dict[tuple[str | None, str | None, str], list[tuple[Contrast, SeparateEffects]]] = {}
    for contrast, separate in found:
        if (separate.other_axis, contrast.axis, contrast.within) not in kept:
            kept.setdefault((contrast.axis, separate.other_axis, contrast.within), []).append((contrast, separate))
    return [pair for group in kept.values() for pair in group]


def _separate(analysis: Analysis, separate: SeparateEffects, metric: str) -> str:
    """Return the effects by value of another axis: all, or if there are many the smallest and the largest."""
    effects = list(separate.effects.items())
    if len(effects) > MOST_NAMES:
        effects.sort(key=lambda effect: effect[1].mean)
        effects = [effects[0], effects[-1]]
    texts: list[str] = []
    for value, effect in effects:
        unit, interval = ("", "") if texts else (f" {readable(metric)}", "95 % interval ")
        texts.append(
            f"{show(effect.mean, metric, signed=True)}{unit} with {value} "
            f"({interval}{_ends(effect.low, effect.high, metric)})"
        )
    margin = analysis.frames.record.margins.get(metric)
    small = margin is not None and all(abs(effect.mean) < margin.value for effect in separate.effects.values())
    note = f"; the margin is {show(margin.value, metric)}" if margin is not None and small else ""
    return f"depends on {separate.other_axis}: {_listed(texts)}{note}"


def _mixed(analysis: Analysis, contrasts: list[Contrast]) -> str:
    """Return contrasts whose average shows no difference, or a small one, while single settings differ."""
    texts = []
    for contrast in contrasts:
        both = sides(analysis, contrast).both()
        average = {
            EQUIVALENT: f"the average difference between {both} is smaller than {_margin(contrast)}",
            IDENTICAL: f"the averages of {both} are equal",
        }.get(contrast.verdict, f"no difference on average could be shown between {both}")
        settings = len(analysis.detected_settings(contrast))
        verb = "is" if settings == 1 else "are"
        found = f", and {counted(settings, 'setting')} {verb} better or worse than the baseline" if settings else ""
        texts.append(f"{average}, but single settings range from {_range(contrast)} {readable(contrast.metric)}{found}")
    return "; ".join(texts) + "."


def _exceeds_margin(contrast: Contrast) -> bool:
    """Return whether an average is equivalent although the difference in a single setting exceeds the margin."""
    test = contrast.judgement.equivalence
    if contrast.verdict != EQUIVALENT or test is None or contrast.spread is None:
        return False
    return max(abs(end) for end in contrast.spread) > test.margin


def _range(contrast: Contrast) -> str:
    """Return the smallest and the largest difference among the averaged settings."""
    low, high = contrast.spread or (math.nan, math.nan)
    return f"{show(low, contrast.metric, signed=True)} to {show(high, contrast.metric, signed=True)}"


def _equivalent(analysis: Analysis, contrasts: list[Contrast]) -> str:
    plural = len(contrasts) > 1
    return (
        f"the difference{'s' * plural} {_between(analysis, contrasts)} {'are' if plural else 'is'} smaller than "
        f"{_margin(contrasts[0])}."
    )


def _margin(contrast: Contrast) -> str:
    test = contrast.judgement.equivalence
    if test is None:
        return ""
    return f"{show(test.margin, contrast.metric)} {readable(contrast.metric)}{contrast.margin_note}"


def _inconclusive(analysis: Analysis, contrasts: list[Contrast]) -> str:
    metric = readable(contrasts[0].metric)
    return f"no difference in {metric} could be shown {_instead(analysis, contrasts)}."


def _interval(contrast: Contrast) -> str:
    """Return the 95 % interval of an inconclusive contrast, or if that excludes zero the wider one of its Holm step."""
    interval = contrast.judgement.interval
    if interval is None or contrast.paired is None:
        return ""
    if contrast.paired.low <= 0 <= contrast.paired.high:
        interval = Interval(CONFIDENCE, contrast.paired.low, contrast.paired.high)
    return f"{interval.percent} interval {_ends(interval.low, interval.high, contrast.metric)}"


def _ends(low: float, high: float, metric: str) -> str:
    """Return the ends of the interval of a difference."""
    return f"{show(low, metric, signed=True)} to {show(high, metric, signed=True)}"


def _identical(analysis: Analysis, contrasts: list[Contrast]) -> str:
    return f"the scores are equal in every seed {_between(analysis, contrasts)}."


def _same(analysis: Analysis, contrasts: list[Contrast]) -> str:
    return f"there is no difference by construction {_between(analysis, contrasts)}."


def _untested(analysis: Analysis, contrasts: list[Contrast]) -> str:
    """Return the scores of both sides of contrasts with too few seeds for a test, or without variance."""
    texts = []
    for contrast in contrasts:
        left, right = (show(score, contrast.metric) for score in scores_of_sides(analysis, contrast))
        names = sides(analysis, contrast)
        texts.append(f"{left} with {names.named(names.left)} against {right} with {names.right}{names.within}")
    scores = f"{readable(contrasts[0].metric)} is {_listed(texts)}"
    if all(contrast.paired is not None and contrast.paired.kind == "constant" for contrast in contrasts):
        return f"{scores}; the differences are the same in every seed."
    return f"too few seeds for a test: {scores}."


def _unranked(analysis: Analysis, contrasts: list[Contrast]) -> str:
    """Return the contrasts without scores, and the reason of the first."""
    reason = (contrasts[0].reason or "").removeprefix("not ranked: ")
    named = [sides(analysis, contrast) for contrast in contrasts]
    texts = [f"{names.named(names.left)} against {names.right}{names.within}" for names in named]
    return f"not ranked: {_listed(texts)} ({reason})."


def _between(analysis: Analysis, contrasts: Sequence[Contrast]) -> str:
    """Return the names of both sides of each contrast, with the left sides of a common right side together."""
    texts = []
    for group in _by_right_side(analysis, contrasts):
        names = group[0][0]
        lefts = _listed([both.left for both, _ in group], "or")
        texts.append(f"between {names.named(names.right)} and {lefts}{names.within}")
    return _listed(texts)


def _instead(analysis: Analysis, contrasts: Sequence[Contrast]) -> str:
    """Return the sides and intervals of contrasts as ``with left (interval) instead of right``."""
    texts = []
    for group in _by_right_side(analysis, contrasts):
        names = group[0][0]
        lefts = [f"{both.left} ({_interval(contrast)})" for both, contrast in group]
        texts.append(f"with {names.named(_listed(lefts, 'or'))} instead of {names.right}{names.within}")
    return _listed(texts)


def _by_right_side(analysis: Analysis, contrasts: Iterable[Contrast]) -> list[list[tuple[SideNames, Contrast]]]:
    """Return the contrasts with their sides, in groups of a common right side."""
    groups: dict[tuple[str, str, str], list[tuple[SideNames, Contrast]]] = {}
    for contrast in contrasts:
        names = sides(analysis, contrast)
        groups.setdefault((names.axis, names.right, names.within), []).append((names, contrast))
    return list(groups.values())


def _listed(names: Sequence[str], conjunction: str = "and") -> str:
    return listed(names, conjunction, MOST_NAMES - 1)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def expected_counts(contrasts: Sequence[Contrast]) -> str:
    """Return a sentence with the number of contrasts by agreement with their expected results; empty without any."""
    counts = Counter[str](contrast.agreement.verdict for contrast in contrasts if contrast.agreement)
    order = ("agrees", "different", "disagrees", "inconclusive")
    parts = ", ".join(f"{verdict} {counts[verdict]}" for verdict in order if counts[verdict])
    return f"{counted(counts.total(), 'expected result')}: {parts}. " if parts else ""


def _nothing_to_compare(analysis: Analysis) -> str:
    states = analysis.frames.runs["state"]
    final = int(states.isin(RESULTS).sum())
    if final < len(states):
        return (
            f"No answer yet: {final} of {len(states)} runs have a result. Variants are ranked when all "
            f"their seeds have a result."
        )
    if len(analysis.frames.by_slug) == 1:
        summary = analysis.summaries[analysis.frames.baseline]
        interval = f" (95 % interval {show(summary.low, analysis.metric)} to {show(summary.high, analysis.metric)})"
        return (
            f"The experiment has a single variant and no comparison: {readable(analysis.metric)} is "
            f"{show(summary.mean, analysis.metric)}{interval if math.isfinite(summary.low) else ''}."
        )
    if {contrast.verdict for contrast in analysis.main_contrasts} == {SAME}:
        return "All variants are the same by construction."
    reasons = {contrast.reason for contrast in analysis.main_contrasts}
    if reasons == {OTHER_DATA} or (not reasons and DATA_AXIS in analysis.frames.record.axes):
        return _separate_scores(analysis)
    first = next((contrast.reason for contrast in analysis.main_contrasts), None)
    return f"No answer: {first or 'the experiment declares no contrast'}."


def _separate_scores(analysis: Analysis) -> str:
    """Return the score of every variant, for variants with different data sets."""
    scores = []
    for slug, variant in analysis.frames.by_slug.items():
        summary = analysis.summaries[slug]
        if slug not in analysis.withheld and not math.isnan(summary.mean):
            ends = f"{show(summary.low, analysis.metric)} to {show(summary.high, analysis.metric)}"
            interval = f" (95 % interval {ends})" if math.isfinite(summary.low) else ""
            scores.append(f"{variant.title} {show(summary.mean, analysis.metric)}{interval}")
    return (
        f"The variants use different data sets and are not ranked; "
        f"{readable(analysis.metric)} of each variant: {'; '.join(scores)}."
    )
