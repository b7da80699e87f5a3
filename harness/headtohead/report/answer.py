"""The answer in one sentence, built from verdicts and claiming no more than they do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.contrasts import EQUAL, IDENTICAL, OTHER_DATA, UNDETECTED, Contrast, sensitivity
from headtohead.analysis.published import Finding, Verdict, findings
from headtohead.analysis.study import Analysis, found_settings, main_contrasts, settings_contradict
from headtohead.report.shapley import path_answer
from headtohead.storage.metrics import readable, show
from headtohead.storage.states import RESULTS

MOST_CLAUSES = 6

MOST_SETTINGS = 2
"""Settings with a detected difference that a clause names."""

FEW_AXES = 2
"""Up to so many axes a variant is named in full; beyond, by what it changes of the baseline."""


def answer(analysis: Analysis) -> str:
    """Return the answer to the experiment's question, as far as its runs give one."""
    contrasts = main_contrasts(analysis)
    if all(contrast.paired is None for contrast in contrasts):
        return _nothing_to_compare(analysis)
    if analysis.path:
        text = ("on the seeds that have finished, " if _partial(analysis) else "") + path_answer(analysis.path)
        return text[0].upper() + text[1:]
    judged = [c for c in contrasts if c.paired is not None or _equal(c)]
    named = _named(judged)
    clauses = [_clause(analysis, contrast) for contrast in named]
    if len(named) < len(judged):
        clauses.append(_rest(analysis, [contrast for contrast in judged if contrast not in named]))
    if len(judged) < len(contrasts):
        clauses.append(_silence(analysis, [c for c in contrasts if c not in judged]))
    text = _opening(analysis, contrasts[0]) + "; ".join(clauses) + "."
    return text[0].upper() + text[1:]


def _named(contrasts: list[Contrast]) -> list[Contrast]:
    """Return the contrasts that have room in one sentence: all, or the largest differences."""
    if len(contrasts) <= MOST_CLAUSES:
        return contrasts
    found = [contrast for contrast in contrasts if contrast.found]
    found.sort(key=lambda contrast: -abs(contrast.paired.mean) if contrast.paired else 0.0)
    kept = found[: MOST_CLAUSES - 1]
    return [contrast for contrast in contrasts if contrast in kept]


def _rest(analysis: Analysis, left_out: list[Contrast]) -> str:
    found = sum(contrast.found for contrast in left_out)
    mixed = [contrast for contrast in left_out if settings_contradict(analysis, contrast)]
    undetected = sum(c.verdict == UNDETECTED for c in left_out if c not in mixed)
    equal = len(left_out) - found - len(mixed) - undetected
    parts = []
    if found:
        parts.append(f"{_counted(found, 'smaller difference')} detected")
    if mixed:
        parts.append(f"{_counted(len(mixed), 'contrast')} inconclusive on average, with differences in single settings")
    if undetected:
        parts.append(f"{_counted(undetected, 'contrast')} without a detected difference")
    if equal:
        parts.append(f"{_counted(equal, 'contrast')} without a test")
    return "of the rest, " + ", ".join(parts)


def _silence(analysis: Analysis, unranked: list[Contrast]) -> str:
    """Return which contrasts could not be judged, and the first reason for it."""
    names = [_name(analysis, contrast) + _against(analysis, contrast) for contrast in unranked]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    reason = (unranked[0].reason or "").removeprefix("not ranked: ")
    return f"not ranked: {shown} ({reason})"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _opening(analysis: Analysis, first: Contrast) -> str:
    partial = "on the seeds that have finished, " if _partial(analysis) else ""
    if first.kind == "factor":
        return partial
    row = analysis.frames.variants[analysis.frames.baseline]
    baseline = f" {row['title']}" if len(row["axes"]) <= FEW_AXES else ""
    whole = "no axis can be judged as a whole; " if analysis.factors.contrasts else ""
    return f"{partial}{whole}against the baseline{baseline}, "


def _partial(analysis: Analysis) -> bool:
    return bool(analysis.allow_partial and analysis.unranked)


def _clause(analysis: Analysis, contrast: Contrast) -> str:
    name = _name(analysis, contrast)
    if contrast.paired is None:
        return f"{name}{_against(analysis, contrast)} is equal by construction"
    if contrast.found:
        verdict = f"{name} is {contrast.verdict}{_than(analysis, contrast)} by {_amount(contrast)}"
        return verdict + _turns(contrast, analysis)
    both = name + _against(analysis, contrast)
    if settings_contradict(analysis, contrast):
        return f"{both}: {_mixed(analysis, contrast)}"
    if contrast.verdict == UNDETECTED:
        return f"{both}: {contrast.words}"
    if contrast.verdict:
        return f"{both}: every seed scores the same"
    mean = show(contrast.paired.mean, contrast.metric, signed=True)
    return f"{both}: a difference of {mean} {readable(contrast.metric)}, too few seeds for a test"


def _name(analysis: Analysis, contrast: Contrast) -> str:
    if contrast.kind == "factor":
        within = f" ({contrast.within})" if contrast.within else ""
        return f"{contrast.axis} {contrast.left}{within}"
    return _changes(analysis, contrast.left)


def _changes(analysis: Analysis, slug: str) -> str:
    """Return what a variant of many axes changes of the baseline; else its title."""
    rows = analysis.frames.variants
    row, baseline = rows[slug], rows[analysis.frames.baseline]["axes"]
    changed = [axis for axis, value in row["axes"].items() if value != baseline.get(axis)]
    if len(baseline) <= FEW_AXES or len(changed) == len(baseline):
        return str(row["title"])
    return " and ".join(f"{axis} {row['axes'][axis]}" for axis in changed)


def _than(analysis: Analysis, contrast: Contrast) -> str:
    return f" than {_right(contrast)}" if _names_right(analysis, contrast) else ""


def _against(analysis: Analysis, contrast: Contrast) -> str:
    return f" against {_right(contrast)}" if _names_right(analysis, contrast) else ""


def _right(contrast: Contrast) -> str:
    return contrast.right if contrast.kind == "factor" else "the baseline"


def _names_right(analysis: Analysis, contrast: Contrast) -> bool:
    """Whether a clause must say what it compares with: not where the sentence opened with it."""
    return contrast.kind == "factor" or main_contrasts(analysis)[0].kind == "factor"


def _amount(contrast: Contrast) -> str:
    paired, metric = contrast.paired, contrast.metric
    assert paired is not None
    size = f"{show(abs(paired.mean), metric)} {readable(metric)}"
    if paired.kind == "constant":
        return f"{size} in every seed"
    low, high = sorted((abs(paired.low), abs(paired.high)))
    if paired.low * paired.high < 0:
        low, high = (paired.low, paired.high) if paired.mean > 0 else (-paired.high, -paired.low)
    return f"{size} (95 % interval {show(low, metric)} to {show(high, metric)})"


def _turns(contrast: Contrast, analysis: Analysis) -> str:
    """Return a warning where the direction depends on the settings that were averaged over."""
    if contrast.spread is None or contrast.paired is None:
        return ""
    low, high = contrast.spread
    opposite = -low if contrast.paired.mean > 0 else high
    if math.isnan(analysis.noise_floor) or opposite <= analysis.noise_floor:
        return ""
    return (
        f", though not in every setting ({show(low, contrast.metric, signed=True)} to "
        f"{show(high, contrast.metric, signed=True)})"
    )


def _mixed(analysis: Analysis, contrast: Contrast) -> str:
    """Return the result of an average whose settings contradict "no difference"."""
    average = "equal" if contrast.verdict == IDENTICAL else "inconclusive"
    parts = [f"{average} on average{sensitivity([contrast])}"]
    if contrast.spread:
        low, high = (show(end, contrast.metric, signed=True) for end in contrast.spread)
        parts.append(f"{low} to {high} {readable(contrast.metric)} in single settings")
    found = found_settings(analysis, contrast)
    parts += [
        f"{_changes(analysis, setting.left)} is {setting.verdict} than the baseline by {_amount(setting)}"
        for setting in found[:MOST_SETTINGS]
    ]
    if more := found[MOST_SETTINGS:]:
        parts.append(f"{_counted(len(more), 'more setting')} better or worse than the baseline")
    return ", ".join(parts)


def _equal(contrast: Contrast) -> bool:
    return contrast.paired is None and contrast.reason == EQUAL


def published_sum(found: Sequence[Finding]) -> str:
    """Return how many published claims agree, in one sentence."""
    counts = Counter(finding.verdict for finding in found)
    words: dict[Verdict, str] = {
        "agrees": "agrees" if counts["agrees"] == 1 else "agree",
        "disagrees": "disagrees" if counts["disagrees"] == 1 else "disagree",
        "cannot tell": "cannot be told",
    }
    parts = [f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict]]
    return f"Of {len(found)} published claim{'s' * (len(found) != 1)}, {', '.join(parts)}."


def _nothing_to_compare(analysis: Analysis) -> str:
    states = analysis.frames.runs["state"]
    final = int(states.isin(RESULTS).sum())
    if final < len(states):
        return (
            f"No answer yet: {final} of {len(states)} runs have come to a result, and nothing "
            f"is ranked on fewer seeds than were asked for."
        )
    if len(analysis.frames.variants) == 1:
        found = findings(analysis.frames, allow_partial=analysis.allow_partial)
        if any(finding.difference for finding in found):
            return published_sum(found)
        summary = analysis.summaries[analysis.frames.baseline]
        return (
            f"One variant, nothing to compare it with: {readable(analysis.metric)} "
            f"{show(summary.mean, analysis.metric)}."
        )
    reasons = {contrast.reason for contrast in main_contrasts(analysis)}
    if reasons == {EQUAL}:
        return "No difference is possible: all variants are equal by construction."
    if reasons == {OTHER_DATA}:
        return _each_by_itself(analysis)
    first = next((contrast.reason for contrast in main_contrasts(analysis)), None)
    return f"No answer: {first or 'the experiment declares no contrast'}."


def _each_by_itself(analysis: Analysis) -> str:
    """Return the score of every variant, where each has data of its own."""
    scores = []
    for slug, row in analysis.frames.variants.items():
        summary = analysis.summaries[slug]
        if not math.isnan(summary.mean):
            interval = f"{show(summary.low, analysis.metric)} to {show(summary.high, analysis.metric)}"
            score = show(summary.mean, analysis.metric)
            scores.append(f"{row['title']} {score} (95 % interval {interval})")
    return (
        f"Each variant has a data set of its own, so none is ranked; "
        f"{readable(analysis.metric)} of each by itself: {'; '.join(scores)}."
    )
