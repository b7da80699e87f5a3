"""What the settings of a change show together: combined by random effects, or one by one, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headtohead.config.labels import listed
from headtohead.storage.metrics import counted, is_per_token, readable, show
from headtohead_judge.random_effects import MIN_SETTINGS, CombinedSettings, combine
from measured import (
    Result,
    distinct_text,
    ends,
    in_metric,
    labels,
    metrics_of,
)

CUT_FROM = {"text shakespeare": "text tinyshakespeare"}
"""Texts that are the beginning of another one, with this one."""

MAX_NAMED = 3
"""Settings that the answer of a card names one by one."""

COMBINED = (
    "Over {settings} settings, the mean difference in {metric} is {mean} ({interval}). 95 % prediction interval for "
    "another {other}: {prediction}."
)
DATA_SET = "data set"
SETTING = "setting"
"""What other differences are predicted for: another data set, if the data of all settings differ, and nothing else."""

SINGLE = "Measured in {number} in {metric} ({data}): too few to predict the difference in others."
NOT_COUNTED = (
    "{number} cannot tell, because all scores there are the lowest or highest possible ones, and {verb} "
    "not counted."
)
CONSTANT = "Its settings are not combined, because a difference that is the same in every seed has no variance."
OTHER_TOKENS = (
    "Its settings are not combined, because tokens of different datasets are different units."
)
SHARED_REPORT = (
    "Its settings are not combined, because some are from one report, with the same seeds and data."
)
SHARED_RUNS = "Its settings are not combined, because some reports share runs."
WARNING = "In `{report}`, {limits}."
BY_SETTING = "Difference in {metric} by setting: {settings}."
OF_SETTING = "{setting} {difference}{interval}, {verdict}"
IN_BRACKETS = " ({interval})"
IN_ALL = "{number} in {metric}, from {low} to {high}: {verdicts}."


def combined(group: Sequence[Result]) -> CombinedSettings | None:
    """Return the settings of a change in one metric combined; None if `_why_not_combined` has a reason."""
    if _why_not_combined(group):
        return None
    return combine([result.estimate for result in group])


def _why_not_combined(group: Sequence[Result]) -> str:
    """Return the sentence on why settings in one metric are not combined; empty if they are."""
    if shares_report(group):
        return SHARED_REPORT
    if shares_runs(group):
        return SHARED_RUNS
    if len(group) < MIN_SETTINGS:
        number = counted(len(group), "setting")
        metric = readable(group[0].metric)
        data = distinct_text([result.setting.data for result in group])
        return SINGLE.format(number=number, metric=metric, data=data)
    datasets = {result.setting.dataset for result in group}
    if is_per_token(group[0].metric) and len(datasets) > 1:
        return OTHER_TOKENS
    if not all(result.estimate.sources[0].variance > 0 for result in group):
        return CONSTANT
    return ""


def shares_report(group: Sequence[Result]) -> bool:
    """Return whether results of a report have the same data, size and steps, so that they can share runs."""
    trained: set[tuple[str, ...]] = set()
    for result in group:
        for part in result.setting.parts:
            if (result.report, *part) in trained:
                return True
        trained.update((result.report, *part) for part in result.setting.parts)
    return False


def shares_runs(group: Sequence[Result]) -> bool:
    """Return whether two results have a run in common, which reports can take over from each other."""
    seen: set[str] = set()
    for result in group:
        if not seen.isdisjoint(result.runs):
            return True
        seen |= result.runs
    return False


def share_data(results_shown: Sequence[Result]) -> bool:
    """Return whether some results have the same data, or a text that is the beginning of another one."""
    seen: set[str] = set()
    for result in results_shown:
        data = {CUT_FROM.get(part[0], part[0]) for part in result.setting.parts}
        if not seen.isdisjoint(data):
            return True
        seen |= data
    return False


def predicted_for(measured: Sequence[Result]) -> str:
    """Return what combined differences are predicted for: another data set, or another setting."""
    sizes_and_passes = {result.setting.place[1:] for result in measured}
    is_same_model = len(sizes_and_passes) == 1
    return DATA_SET if is_same_model and not share_data(measured) else SETTING


def answer(group: Sequence[Result]) -> str:
    """Return the sentences of a card on the settings of each metric: combined, or each of them."""
    metrics = metrics_of(group)
    if not metrics:
        return group[0].sentence
    sentences = []
    for metric in metrics:
        measured = in_metric(group, metric)
        together = combined(measured)
        if together is None:
            sentences.append(_each(measured))
            continue
        sentence = COMBINED.format(
            settings=together.settings,
            metric=readable(metric),
            mean=show(together.mean, metric, signed=True),
            interval=ends(together.interval.low, together.interval.high, metric),
            other=predicted_for(measured),
            prediction=ends(together.prediction.low, together.prediction.high, metric),
        )
        sentences.append(sentence)
    return " ".join(sentences)


def remarks(group: Sequence[Result]) -> str:
    """Return why settings are not combined, how many cannot tell, and what limits a report most; or an empty text."""
    sentences = [_why_not_combined(in_metric(group, metric)) for metric in metrics_of(group)]
    not_counted = sum(not result.can_tell for result in group)
    if not_counted and sentences:
        number = counted(not_counted, "setting").capitalize()
        verb = "is" if not_counted == 1 else "are"
        sentences.append(NOT_COUNTED.format(number=number, verb=verb))
    for result in group:
        if result.warnings:
            warning = WARNING.format(report=result.report, limits="; ".join(result.warnings))
            sentences.append(warning)
    return " ".join(dict.fromkeys(sentence for sentence in sentences if sentence))


def _each(measured: Sequence[Result]) -> str:
    """Return the sentence on every setting; with more than `MAX_NAMED`, their range and how many have each verdict."""
    if len(measured) == 1:
        return measured[0].sentence
    metric = readable(measured[0].metric)
    if len(measured) > MAX_NAMED:
        differences = [result.contrast["difference"] for result in measured]
        directions = Counter(result.contrast["direction"] for result in measured)
        return IN_ALL.format(
            number=counted(len(measured), "difference"),
            metric=metric,
            low=show(min(differences), measured[0].metric, signed=True),
            high=show(max(differences), measured[0].metric, signed=True),
            verdicts=listed([f"{number} {name}" for name, number in directions.most_common()]),
        )
    settings = []
    for result, label in zip(measured, labels(measured), strict=True):
        setting = OF_SETTING.format(
            setting=label,
            difference=result.difference,
            interval=IN_BRACKETS.format(interval=result.interval) if result.interval else "",
            verdict=result.verdict,
        )
        settings.append(setting)
    return BY_SETTING.format(metric=metric, settings="; ".join(settings))
