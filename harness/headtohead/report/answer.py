"""The answer of a report: a sentence built from the verdicts of the main contrasts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.contrasts import OTHER_DATA, Contrast
from headtohead.analysis.published import ClaimResult, ClaimVerdict, claim_results
from headtohead.analysis.study import (
    Analysis,
    SeparateEffects,
    detected_settings,
    main_contrasts,
    separate_effects,
    settings_contradict,
)
from headtohead.report.cells import show_level
from headtohead.report.shapley import path_answer
from headtohead.statistics.verdicts import EQUIVALENT, IDENTICAL, INCONCLUSIVE, NO_VERDICT, SAME
from headtohead.storage.metrics import readable, show, show_p
from headtohead.storage.states import RESULTS

MOST_CLAUSES = 6
"""Maximum number of clauses of an answer."""

MOST_SETTINGS = 2
"""Maximum number of settings with a detected difference that a clause names."""

MOST_EFFECTS = 4
"""Maximum number of effects by value of another axis that a clause lists."""

FEW_AXES = 2
"""Maximum number of axes with which a variant is named by its title; with more, by its changes of the baseline."""


def answer(analysis: Analysis) -> str:
    """Return the answer to the experiment's question, or why there is none."""
    contrasts = main_contrasts(analysis)
    if all(contrast.paired is None for contrast in contrasts):
        return _nothing_to_compare(analysis)
    if analysis.path:
        text = ("on the finished seeds, " if _partial(analysis) else "") + path_answer(analysis.path)
        return text[0].upper() + text[1:]
    judged = [contrast for contrast in contrasts if contrast.paired is not None or contrast.verdict == SAME]
    named = _named(judged)
    clauses = [_clause(analysis, contrast) for contrast in named]
    if len(named) < len(judged):
        clauses.append(_rest(analysis, [contrast for contrast in judged if contrast not in named]))
    if len(judged) < len(contrasts):
        clauses.append(_unranked_clause(analysis, [contrast for contrast in contrasts if contrast not in judged]))
    text = _opening(analysis, contrasts[0]) + "; ".join(clauses) + "."
    return text[0].upper() + text[1:]


def _named(contrasts: list[Contrast]) -> list[Contrast]:
    """Return the contrasts that the answer names: all, or the largest detected differences."""
    if len(contrasts) <= MOST_CLAUSES:
        return contrasts
    detected = [contrast for contrast in contrasts if contrast.detected]
    detected.sort(key=lambda contrast: -abs(contrast.paired.mean) if contrast.paired else 0.0)
    largest = detected[: MOST_CLAUSES - 1]
    return [contrast for contrast in contrasts if contrast in largest]


def _rest(analysis: Analysis, contrasts: list[Contrast]) -> str:
    """Return the numbers of the contrasts that the answer does not name."""
    detected = sum(contrast.detected for contrast in contrasts)
    mixed = [contrast for contrast in contrasts if settings_contradict(analysis, contrast)]
    others = Counter(contrast.verdict for contrast in contrasts if not contrast.detected and contrast not in mixed)
    parts = []
    if detected:
        parts.append(f"{_counted(detected, 'smaller difference')} detected")
    if mixed:
        parts.append(f"{_counted(len(mixed), 'contrast')} inconclusive on average, with differences in single settings")
    parts += [f"{_counted(number, 'contrast')} {verdict}" for verdict, number in others.items()]
    return "of the other contrasts: " + ", ".join(parts)


def _unranked_clause(analysis: Analysis, unranked: list[Contrast]) -> str:
    """Return the contrasts without a test, and the reason of the first."""
    names = [_name(analysis, contrast) + _against(analysis, contrast) for contrast in unranked]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    reason = (unranked[0].reason or "").removeprefix("not ranked: ")
    return f"not ranked: {listed} ({reason})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _opening(analysis: Analysis, first: Contrast) -> str:
    partial = "on the finished seeds, " if _partial(analysis) else ""
    if first.kind == "factor":
        return partial
    variant = analysis.frames.by_slug[analysis.frames.baseline]
    baseline = f" {variant.title}" if len(variant.axes) <= FEW_AXES else ""
    no_factors = "no axis could be tested over all settings; " if analysis.factors.contrasts else ""
    return f"{partial}{no_factors}compared with the baseline{baseline}, "


def _partial(analysis: Analysis) -> bool:
    return bool(analysis.allow_partial and analysis.unranked)


def _clause(analysis: Analysis, contrast: Contrast) -> str:
    name = _name(analysis, contrast)
    if contrast.paired is None:
        return f"{name}{_against(analysis, contrast)} is {SAME}"
    if separate := separate_effects(analysis, contrast):
        return f"{name}{_against(analysis, contrast)}: {_separate(separate, contrast.metric)}"
    if contrast.detected:
        verdict = f"{name} is {contrast.verdict}{_than(analysis, contrast)} by {_amount(contrast)}"
        return verdict + _direction_warning(contrast, analysis)
    sides = name + _against(analysis, contrast)
    if settings_contradict(analysis, contrast):
        return f"{sides}: {_mixed(analysis, contrast)}"
    if contrast.verdict == IDENTICAL:
        return f"{sides}: equal scores in every seed"
    mean = f"{show(contrast.paired.mean, contrast.metric, signed=True)} {readable(contrast.metric)}"
    if contrast.verdict == NO_VERDICT:
        return f"{sides}: a difference of {mean}, too few seeds for a test"
    return f"{sides}: {contrast.verdict_text} ({mean}, {_test(contrast)})"


def _name(analysis: Analysis, contrast: Contrast) -> str:
    if contrast.kind == "factor":
        within = f" ({contrast.within})" if contrast.within else ""
        return f"{contrast.axis} {contrast.left}{within}"
    return _changes(analysis, contrast.left)


def _changes(analysis: Analysis, slug: str) -> str:
    """Return the axis values in which a variant differs from the baseline, or its title if there are few axes."""
    by_slug = analysis.frames.by_slug
    variant, baseline = by_slug[slug], by_slug[analysis.frames.baseline].axes
    changed = [axis for axis, value in variant.axes.items() if value != baseline.get(axis)]
    if len(baseline) <= FEW_AXES or len(changed) == len(baseline):
        return variant.title
    return " and ".join(f"{axis} {variant.axes[axis]}" for axis in changed)


def _separate(separate: SeparateEffects, metric: str) -> str:
    """Return the effects by value of another axis: all, or if there are many the smallest and the largest."""
    effects = list(separate.effects.items())
    if len(effects) > MOST_EFFECTS:
        effects.sort(key=lambda effect: effect[1].mean)
        effects = [effects[0], effects[-1]]
    texts = [
        f"{show(effect.mean, metric, signed=True)} (95 % interval {show(effect.low, metric)} to "
        f"{show(effect.high, metric)}) with {separate.other_axis} {value}"
        for value, effect in effects
    ]
    return f"depends on {separate.other_axis} (p {_p(separate.holm_p)}): {readable(metric)} {', '.join(texts)}"


def _p(p: float) -> str:
    return show_p(p) if p < 0.0005 else f"= {show_p(p)}"


def _than(analysis: Analysis, contrast: Contrast) -> str:
    return f" than {_right(contrast)}" if _names_right(analysis, contrast) else ""


def _against(analysis: Analysis, contrast: Contrast) -> str:
    return f" against {_right(contrast)}" if _names_right(analysis, contrast) else ""


def _right(contrast: Contrast) -> str:
    return contrast.right if contrast.kind == "factor" else "the baseline"


def _names_right(analysis: Analysis, contrast: Contrast) -> bool:
    """Return whether a clause names its right side; it does not if the opening of the answer names the baseline."""
    return contrast.kind == "factor" or main_contrasts(analysis)[0].kind == "factor"


def _amount(contrast: Contrast) -> str:
    paired, metric = contrast.paired, contrast.metric
    assert paired is not None
    size = f"{show(abs(paired.mean), metric)} {readable(metric)}"
    if paired.kind == "constant":
        return f"{size} in every seed"
    return f"{size} ({_test(contrast, absolute=True)})"


def _test(contrast: Contrast, *, absolute: bool = False) -> str:
    """Return the interval and p of the test that the verdict rests on, adjusted by Holm."""
    judgement, metric = contrast.judgement, contrast.metric
    interval, p = judgement.interval, judgement.holm_p
    if contrast.verdict == EQUIVALENT and judgement.equivalence:
        interval, p = judgement.equivalence.interval, judgement.equivalence.holm_p
    assert interval is not None
    low, high = interval.low, interval.high
    if absolute and interval.high < 0:
        low, high = -high, -low
    return f"{show_level(interval)} interval {show(low, metric)} to {show(high, metric)}, p {_p(p)}"


def _direction_warning(contrast: Contrast, analysis: Analysis) -> str:
    """Return a warning if the direction of a factor effect depends on the setting."""
    if contrast.spread is None or contrast.paired is None:
        return ""
    low, high = contrast.spread
    opposite = -low if contrast.paired.mean > 0 else high
    if math.isnan(analysis.baseline_sd) or opposite <= analysis.baseline_sd:
        return ""
    return (
        f", but not in every setting ({show(low, contrast.metric, signed=True)} to "
        f"{show(high, contrast.metric, signed=True)})"
    )


def _mixed(analysis: Analysis, contrast: Contrast) -> str:
    """Return the result of a factor contrast with an inconclusive average and different settings."""
    average = "equal" if contrast.verdict == IDENTICAL else "inconclusive"
    parts = [f"{average} on average"]
    if contrast.spread:
        low, high = (show(end, contrast.metric, signed=True) for end in contrast.spread)
        parts.append(f"{low} to {high} {readable(contrast.metric)} in single settings")
    detected = detected_settings(analysis, contrast)
    parts += [
        f"{_changes(analysis, setting.left)} is {setting.verdict} than the baseline by {_amount(setting)}"
        for setting in detected[:MOST_SETTINGS]
    ]
    if more := detected[MOST_SETTINGS:]:
        parts.append(f"{_counted(len(more), 'more setting')} better or worse than the baseline")
    return ", ".join(parts)


def published_counts(results: Sequence[ClaimResult]) -> str:
    """Return a sentence with the number of published claims by verdict."""
    counts = Counter(result.verdict for result in results)
    verbs: dict[ClaimVerdict, str] = {
        "agrees": "agrees" if counts["agrees"] == 1 else "agree",
        "disagrees": "disagrees" if counts["disagrees"] == 1 else "disagree",
        "inconclusive": "is inconclusive" if counts["inconclusive"] == 1 else "are inconclusive",
    }
    parts = [f"{counts[verdict]} {verb}" for verdict, verb in verbs.items() if counts[verdict]]
    return f"Of {_counted(len(results), 'published claim')}, {', '.join(parts)}."


def _nothing_to_compare(analysis: Analysis) -> str:
    states = analysis.frames.runs["state"]
    final = int(states.isin(RESULTS).sum())
    if final < len(states):
        return (
            f"No answer yet: {final} of {len(states)} runs have a result. Variants are ranked when all "
            f"their seeds have a result."
        )
    if len(analysis.frames.by_slug) == 1:
        results = claim_results(analysis.frames, allow_partial=analysis.allow_partial)
        if any(result.difference for result in results):
            return published_counts(results)
        summary = analysis.summaries[analysis.frames.baseline]
        return (
            f"The experiment has a single variant and no comparison: {readable(analysis.metric)} "
            f"{show(summary.mean, analysis.metric)}."
        )
    if {contrast.verdict for contrast in main_contrasts(analysis)} == {SAME}:
        return "All variants are the same by construction."
    reasons = {contrast.reason for contrast in main_contrasts(analysis)}
    if reasons == {OTHER_DATA}:
        return _separate_scores(analysis)
    first = next((contrast.reason for contrast in main_contrasts(analysis)), None)
    return f"No answer: {first or 'the experiment declares no contrast'}."


def _separate_scores(analysis: Analysis) -> str:
    """Return the score of every variant, for variants with different data sets."""
    scores = []
    for slug, variant in analysis.frames.by_slug.items():
        summary = analysis.summaries[slug]
        if not math.isnan(summary.mean):
            interval = f"{show(summary.low, analysis.metric)} to {show(summary.high, analysis.metric)}"
            score = show(summary.mean, analysis.metric)
            scores.append(f"{variant.title} {score} (95 % interval {interval})")
    return (
        f"The variants use different data sets and are not ranked; "
        f"{readable(analysis.metric)} of each variant: {'; '.join(scores)}."
    )


def short_answer(analysis: Analysis) -> tuple[str, ...]:
    """Return the lines of the answer for a terminal: one line per axis, without intervals.

    An experiment without factor contrasts has the answer of its report.
    """
    contrasts = main_contrasts(analysis)
    if any(contrast.kind != "factor" for contrast in contrasts) or all(
        contrast.paired is None for contrast in contrasts
    ):
        return (answer(analysis),)
    by_axis: dict[str, list[str]] = {}
    for contrast in contrasts:
        by_axis.setdefault(str(contrast.axis), []).append(_short_clause(analysis, contrast))
    width = max(map(len, by_axis))
    lines = [f"  {axis:{width}}  {'; '.join(clauses)}" for axis, clauses in by_axis.items()]
    if any(contrast.verdict == INCONCLUSIVE for contrast in contrasts):
        lines.append("  Inconclusive: these runs do not show which is better. The report has intervals and tests.")
    return (analysis.frames.record.question, *lines)


def _short_clause(analysis: Analysis, contrast: Contrast) -> str:
    sides = f"{contrast.left} against {contrast.right}" + (f" ({contrast.within})" if contrast.within else "")
    if contrast.paired is None:
        return f"{sides}: {contrast.reason or contrast.verdict}"
    if separate := separate_effects(analysis, contrast):
        return f"{sides}: depends on {separate.other_axis}"
    if contrast.detected:
        size = f"{show(abs(contrast.paired.mean), contrast.metric)} {readable(contrast.metric)}"
        varies = ", depending on the other axes" if _direction_warning(contrast, analysis) else ""
        return f"{sides}: {contrast.verdict} by {size}{varies}"
    if settings_contradict(analysis, contrast):
        return f"{sides}: depends on the other axes"
    return f"{sides}: {'too few seeds for a test' if contrast.verdict == NO_VERDICT else contrast.verdict_text}"
