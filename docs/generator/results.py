"""The pages of ``docs/results``: a heat map and a table of committed differences of single changes, and a card each.

A change is a field with its value before and after, such as positional: sinusoidal → rotary. Everything is read from
``answer.json`` and ``results.csv`` of the committed reports that are not withdrawn. A setting in which all scores are
the lowest or highest possible ones is shown as "cannot tell", and neither counted nor averaged.

``python docs/generator/results.py`` writes the pages; ``make docs`` writes them with the other generated pages.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import yaml

from headtohead.config.clauses import change_clause
from headtohead.config.labels import listed, text
from headtohead.errors import HeadToHeadError
from headtohead.figures import style
from headtohead.figures.rows import Row, row_figure
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import find_entry
from headtohead.storage.metrics import counted, is_per_token, readable, show, with_unit
from headtohead_judge.paired_tests import Difference, Source
from headtohead_judge.random_effects import MIN_SETTINGS, CombinedSettings, combine
from headtohead_judge.verdicts import BY_MORE, CANNOT_TELL, IDENTICAL

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
RESULTS = ROOT / "docs" / "results"

NOT_COMPONENTS = ("train.", "data", "match", "size", "recipe")
"""Beginnings of fields that are no component of a model; their changes have no card."""

PUBLISHED = ("quickstart", "architectures", "contested/components-shakespeare-1")
"""Reports with their page as a browser opens it in ``docs/results``."""

DEMO = "demo/"
"""Folder of the report of ``make demo``, which is not committed."""

CARD_STUDY = "card-"
"""Beginning of the names of the studies of ``h2h card``."""

FIGURES = "*-[0-9].svg"
"""Names of the figures of cards."""

NOT_CARDS = ("README.md", "records.md", "noise.md")
"""Pages of the folder that are no card."""

OF_BASELINE = "baseline-"
"""Beginning of a value of ``match`` by which every variant has the size of the baseline."""

SAME_RUNS = re.compile(r"the same runs as (.+), counted once")
"""The reason of a contrast whose runs are those of another contrast, with its name."""

TEXTS = re.compile(r"data/(shakespeare|english|docstrings)\.txt")
"""Files that ``benchmarks/texts.py`` writes."""

CUT_FROM = {"text shakespeare": "text tinyshakespeare"}
"""Texts that are the beginning of another one, with this one."""

AS_CONFIGURED = {"sizes": "sizes as configured", "tuned": "not tuned"}
"""Text of a detail of a setting that is empty, where another setting has one."""

MAX_NAMED = 3
"""Settings that the answer of a card names one by one."""

SETTLED = {"better": "better", "worse": "worse", "larger": "other", "smaller": "other"}
SETTLED |= {"equivalent": "equivalent", "identical": "equivalent"}
"""The class of a verdict by its direction; the cell of another direction is hatched."""

COUNTS = ["parameters/non_embedding", "flops_per_token"]
"""Columns of ``results.csv`` with the cost of a variant."""


@dataclass(frozen=True)
class Setting:
    """Where a difference was measured: data, size and training.

    A difference that is an average has every value of its parts, such as ``5 and 2`` layers.
    """

    data: str
    width: str
    layers: str
    steps: str
    passes: str
    matched: str
    tuned: tuple[str, ...]
    parts: frozenset[tuple[str, ...]]
    """Data, size and steps of each part; parts of a report with equal ones can share runs."""

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Any]]) -> Setting:
        """Return the setting of a contrast of ``answer.json``, from those of its parts."""
        tuned: dict[str, None] = {}
        for part in parts:
            tuned.update(dict.fromkeys(part["tuned"]))
        return cls(
            data=_distinct([part["data"] for part in parts]),
            width=_distinct([str(part["width"]) for part in parts]),
            layers=_distinct([_layers(part["layers"]) for part in parts]),
            steps=_distinct([f"{part['steps']:,}" for part in parts]),
            passes=_distinct([f"{part['passes']:.2g}" for part in parts if part["passes"]]),
            matched=_distinct([part["matched"] for part in parts if part["matched"]]),
            tuned=tuple(tuned),
            parts=frozenset(
                (part["data"], str(part["width"]), str(part["layers"]), str(part["steps"]))
                for part in parts
            ),
        )

    @property
    def details(self) -> dict[str, str]:
        """The parts of its text by their names, of which "sizes" and "tuned" can be empty."""
        unit = "layer" if self.layers == "1" else "layers"
        steps = ", ".join([f"{self.steps} steps", *self._passes])
        sizes = f"equal {self.matched.removeprefix(OF_BASELINE)}" if self.matched else ""
        names = [name.rpartition(".")[2].replace("lr", "learning rates") for name in self.tuned]
        return {
            "data": self.data,
            "size": f"width {self.width}, {self.layers} {unit}",
            "steps": steps,
            "sizes": sizes,
            "tuned": f"tuned {listed(names)}" if names else "",
        }

    @property
    def dataset(self) -> str:
        """The name of the dataset, without that of its text or languages."""
        name, _, _ = self.data.partition(" ")
        return name

    @property
    def place(self) -> tuple[str, ...]:
        """Data, size and passes, if they are known: the column of the heat map."""
        return self.data, self.details["size"], *self._passes

    @property
    def _passes(self) -> list[str]:
        """The passes over the data as text; none if they are unknown."""
        if not self.passes:
            return []
        return [f"{self.passes} {'pass' if self.passes == '1' else 'passes'}"]

    @property
    def lines(self) -> list[str]:
        """The details of its text that are not empty."""
        return [detail for detail in self.details.values() if detail]


def _layers(counts: Sequence[int]) -> str:
    """Return the number of layers, or those of the encoder and of the decoder, as text."""
    if len(counts) == 1:
        return str(counts[0])
    encoder, decoder = counts
    return f"{encoder} encoder + {decoder} decoder"


def _distinct(values: Sequence[str]) -> str:
    """Return the distinct values as text, in their order."""
    return listed(list(dict.fromkeys(values))) if values else ""


@dataclass(frozen=True)
class Result:
    """A judged contrast of one change.

    Attributes:
        report: The name of its report.
        setting: Where the difference was measured.
        contrast: Its fields of ``answer.json``.
        name: The change as people call it.
        pairs: Changed variant and variant without the change, by their names in the table of runs.
        model: The variants without the change as people call them; empty if they are not in the table of runs.
        runs: The hashes of its runs.
        score_without: The mean score of the variants without the change; None if the report does not rank one of them,
            and in another metric than its primary one.
        warnings: What limits its report most, such as test examples in training.
        cautions: What else limits its report, but not that it has a single data set.
    """

    report: str
    setting: Setting
    contrast: Mapping[str, Any]
    name: str
    pairs: Sequence[tuple[str, str]] = ()
    model: str = ""
    runs: frozenset[str] = field(default_factory=frozenset)
    score_without: float | None = None
    warnings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def change(self) -> tuple[str, str, str]:
        """The field, and its value before and after, as text."""
        change = self.contrast["change"]
        return change["field"], text(change["from"]), text(change["to"])

    @property
    def metric(self) -> str:
        """The metric of the difference."""
        return str(self.contrast["metric"])

    @property
    def can_tell(self) -> bool:
        """Whether the scores can differ: not all are the lowest or highest possible ones."""
        return bool(self.contrast["direction"] != CANNOT_TELL)

    @property
    def difference(self) -> str:
        """The difference with its sign; where the scores cannot tell, what all of them are."""
        if not self.can_tell:
            return f"{readable(self.metric)}: {self.contrast['reason']}"
        return show(self.contrast["difference"], self.metric, signed=True)

    @property
    def with_metric(self) -> str:
        """The difference with the name of its metric."""
        return f"{self.difference} {readable(self.metric)}" if self.can_tell else self.difference

    @property
    def without(self) -> str:
        """The mean score without the change; empty if it is not known."""
        return "" if self.score_without is None else show(self.score_without, self.metric)

    @property
    def verdict(self) -> str:
        """The verdict as pages print it: the direction, and *by less than the margin* if that is shown."""
        return str(self.contrast["verdict"]).removesuffix(f" {BY_MORE}")

    @property
    def sentence(self) -> str:
        """The sentence of the report on the contrast."""
        return str(self.contrast["sentence"])

    @property
    def kind(self) -> str:
        """The class of its verdict on the site."""
        return SETTLED.get(self.contrast["direction"], "open")

    @property
    def interval(self) -> str:
        """The ends of the interval; empty where the scores cannot tell, or are the same on both sides in every seed."""
        if not self.ends:
            return ""
        low, high = self.ends
        return _ends(low, high, self.metric)

    @property
    def ends(self) -> tuple[float, ...]:
        """The same as numbers."""
        if self.contrast["direction"] in (CANNOT_TELL, IDENTICAL):
            return ()
        interval = self.contrast["interval"]
        return interval["low"], interval["high"]

    @property
    def estimate(self) -> Difference:
        """The difference with its sources of variance."""
        sources = tuple(Source(**source) for source in self.contrast["sources"])
        seeds = len(self.contrast["seeds"])
        return Difference("varied", seeds, self.contrast["difference"], sources, math.nan, math.nan)


def withdrawn(reports: Path) -> dict[str, str]:
    """Return why reports are withdrawn, by their names; empty without any."""
    file = reports / "withdrawn.yaml"
    if not file.is_file():
        return {}
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


def committed_answers(reports: Path = REPORTS) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each report that is not withdrawn, with the content of its ``answer.json``."""
    left_out = withdrawn(reports)
    for file in sorted(reports.rglob("answer.json")):
        report = file.parent.relative_to(reports).as_posix()
        if report not in left_out and not report.startswith(DEMO):
            yield report, json.loads(file.read_text(encoding="utf-8"))


def results(reports: Path = REPORTS) -> list[Result]:
    """Return every judged main contrast of a component, report by report, without withdrawn reports."""
    results = []
    for report, answer in committed_answers(reports):
        table = runs_of(report, reports)
        same = _same_runs(answer["contrasts"])
        for contrast in answer["contrasts"]:
            if not _is_shown(contrast):
                continue
            pairs = []
            for variant, against in contrast["pairs"]:
                pairs.append((same.get(variant, variant), same.get(against, against)))
            variants = [name for pair in pairs for name in pair]
            without = [against for _, against in pairs]
            others = table[table["variant"].isin(without)]
            result = Result(
                report=report,
                setting=Setting.of([answer["settings"][name] for _, name in contrast["pairs"]]),
                contrast=contrast,
                name=_name(contrast, answer["contrasts"]),
                pairs=tuple(pairs),
                model=" / ".join(dict.fromkeys(others["title"])),
                runs=frozenset(table.loc[table["variant"].isin(variants), "run_hash"]),
                score_without=_score(answer, contrast, without),
                warnings=_limits(answer, "warning"),
                cautions=_limits(answer, "caution"),
            )
            results.append(result)
    return results


def _score(
    answer: Mapping[str, Any], contrast: Mapping[str, Any], variants: Sequence[str]
) -> float | None:
    """Return the mean score of variants in the metric of a contrast.

    None without a score of each of them. A report has scores in its primary metric alone, over all lengths.
    """
    if contrast["metric"] != answer["metric"] or contrast.get("lengths"):
        return None
    if not answer["scores"].keys() >= {*variants}:
        return None
    return fmean(answer["scores"][variant] for variant in variants)


def _limits(answer: Mapping[str, Any], severity: str) -> tuple[str, ...]:
    """Return what limits the answer of a report, by remarks of a severity."""
    limits = []
    for remark in answer["remarks"]:
        if remark["severity"] == severity and remark["limit"]:
            limits.append(remark["limit"])
    return tuple(limits)


def runs_of(report: str, reports: Path) -> pd.DataFrame:
    """Return the table of the runs of a report, which is empty if the report has none."""
    file = reports / report / "results.csv"
    if not file.is_file():
        return pd.DataFrame(columns=["variant", "title", "run_hash", *COUNTS])
    return pd.read_csv(file)


def _same_runs(contrasts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the variants that are not in the table of runs, with the variant whose runs they share.

    They are found by contrasts that are "the same runs as" another contrast with the same other side.
    """
    by_name = {(contrast["family"], contrast["name"]): contrast for contrast in contrasts}
    same = {}
    for contrast in contrasts:
        reason = SAME_RUNS.search(contrast["reason"] or "")
        first = by_name.get((contrast["family"], reason[1])) if reason else None
        if first is None:
            continue
        for (variant, against), (counted_variant, other) in zip(
            contrast["pairs"], first["pairs"], strict=False
        ):
            if against == other:
                same[variant] = counted_variant
    return same


def _name(contrast: Mapping[str, Any], contrasts: Sequence[Mapping[str, Any]]) -> str:
    """Return the change of a contrast as people call it.

    A declared contrast can have any name: it is called like another contrast of the same change, the one with the
    shortest name. A name that also has other fields, after a comma or in parentheses, does not count. Without any, it
    is called by its values. The name of a change between two configurations ends with that of one of them, which is
    left out.
    """
    if contrast["family"] in ("added", "taken"):
        return str(contrast["name"]).rpartition(" in ")[0]
    if contrast["family"] != "declared":
        return str(contrast["name"])
    change = contrast["change"]
    names = []
    for other in contrasts:
        is_alike = other["family"] != "declared" and other.get("change") == change
        if is_alike and not re.search(r"[(,]", other["name"]):
            names.append(str(other["name"]))
    by_values = change_clause(text(change["to"]), text(change["from"]))
    return min(names, key=len, default=by_values)


def _is_shown(contrast: Mapping[str, Any]) -> bool:
    """Return whether a contrast has a cell: a main contrast of one component.

    It has an interval and its sources, or its scores cannot tell.
    """
    change = contrast.get("change")
    if not contrast["main"] or not change or change["field"].startswith(NOT_COMPONENTS):
        return False
    if contrast["direction"] == CANNOT_TELL:
        return True
    return bool(contrast["interval"] and contrast["sources"])


def slug(change: tuple[str, str, str]) -> str:
    """Return the name of the page of a change."""
    words = re.sub(r"[^a-z0-9]+", "-", " ".join(change).lower())
    return words.strip("-")


def by_change(results_shown: Sequence[Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Return the results of each change, the most studied change first."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results_shown:
        groups.setdefault(result.change, []).append(result)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return dict(ordered)


CELL = '{label}{difference}{interval}<br><span class="{kind}">{verdict}</span>'
ONE_SETTING = "No change has results in several settings."


def heat_map(results_shown: Sequence[Result]) -> str:
    """Return a row per change with results in several settings, and a column per setting: data, size and passes.

    The class of a verdict is its colour on the site; elsewhere the cell has the verdict in words alone. A metric that
    all results of a change have stands below its name.
    """
    groups = {}
    for change, group in by_change(results_shown).items():
        if len({result.setting.place for result in group}) > 1:
            groups[change] = group
    columns = dict.fromkeys(result.setting.place for group in groups.values() for result in group)
    if not columns:
        return ONE_SETTING
    heads = ["<br>".join(place) for place in columns]
    lines = [f"| change | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
    for change, group in groups.items():
        metrics = {readable(result.metric) for result in group}
        has_one_metric = len(metrics) == 1
        row = [f"[{group[0].name}]({slug(change)}.md)"]
        if has_one_metric:
            row[0] += f"<br>{metrics.pop()}"
        for place in columns:
            in_cell = [result for result in group if result.setting.place == place]
            row.append(_cell(in_cell, has_metric=not has_one_metric) if in_cell else "")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _cell(in_cell: Sequence[Result], *, has_metric: bool) -> str:
    """Return the differences of a change in a setting; where there are several, each after what distinguishes it."""
    texts = []
    for result, label in zip(in_cell, labels(in_cell), strict=True):
        text_of_result = CELL.format(
            label=f"{label}:<br>" if label else "",
            difference=result.with_metric if has_metric else result.difference,
            interval=f"<br>({result.interval})" if result.interval else "",
            kind=result.kind,
            verdict=result.verdict,
        )
        texts.append(text_of_result)
    return "<br>".join(texts)


TABLE_HEAD = """| change | setting | without it | difference | 95 % interval | verdict |
|---|---|---:|---:|---|---|"""
TABLE_ROW = (
    "| {change} | {setting} | {without} | {difference} | {interval} | "
    '<span class="{kind}">{verdict}</span> |'
)


def table(results_shown: Sequence[Result]) -> str:
    """Return the table of all results, change by change.

    The class of a verdict is its colour on the site; elsewhere the table has the verdict in words alone. Where the
    scores cannot tell, it has what all of them are in place of the difference.
    """
    if not results_shown:
        return "No report has a result."
    lines = [TABLE_HEAD]
    for change, group in by_change(results_shown).items():
        link = f"[{group[0].name}]({slug(change)}.md)"
        for result, setting in zip(group, labels(group, ["data", "size", "steps"]), strict=True):
            line = TABLE_ROW.format(
                change=link,
                setting=setting,
                without=result.without,
                difference=result.with_metric,
                interval=result.interval,
                kind=result.kind,
                verdict=result.verdict,
            )
            lines.append(line)
    return "\n".join(lines)


def settings_of(group: Sequence[Result]) -> list[str]:
    """Return the setting of each result of a change, with the model that was changed if a report has several."""
    times = Counter((result.report, result.setting) for result in group)
    texts = []
    for result, detail in zip(group, _details(group), strict=True):
        names = ["data", "size", "steps", "sizes", "tuned"]
        if times[result.report, result.setting] > 1:
            names.append("model")
        texts.append(", ".join(detail[name] for name in names if detail[name]))
    return texts


def labels(group: Sequence[Result], always: Sequence[str] = ()) -> list[str]:
    """Return what distinguishes the settings of results of a change: each detail that separates further results.

    Args:
        group: The results.
        always: Names of details that every label has.
    """
    details = _details(group)
    shown = list(always)
    for name in details[0]:
        if _number_of_labels(details, [*shown, name]) > _number_of_labels(details, shown):
            shown.append(name)
    return [", ".join(detail[name] for name in shown) for detail in details]


def _number_of_labels(details: Sequence[Mapping[str, str]], names: Sequence[str]) -> int:
    """Return the number of different labels that these details make."""
    return len({tuple(detail[name] for name in names) for detail in details})


def _details(group: Sequence[Result]) -> list[dict[str, str]]:
    """Return the details of the setting of each result, its model and its report, by their names.

    A detail that no result has is empty. The model is the one that was changed; if its name is not known, it is the
    contrast in the report.
    """
    details = []
    for result in group:
        detail = result.setting.details
        detail["model"] = f"model “{result.model or result.contrast['name']}”"
        detail["report"] = f"`{result.report}`"
        details.append(detail)
    for name, as_configured in AS_CONFIGURED.items():
        if any(detail[name] for detail in details):
            for detail in details:
                detail[name] = detail[name] or as_configured
    return details


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
        data = _distinct([result.setting.data for result in group])
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
            interval=_ends(together.interval.low, together.interval.high, metric),
            other=_other(measured),
            prediction=_ends(together.prediction.low, together.prediction.high, metric),
        )
        sentences.append(sentence)
    return " ".join(sentences)


def _other(measured: Sequence[Result]) -> str:
    """Return what combined differences are predicted for: another data set, or another setting."""
    sizes_and_passes = {result.setting.place[1:] for result in measured}
    is_same_model = len(sizes_and_passes) == 1
    return DATA_SET if is_same_model and not _share_data(measured) else SETTING


def _share_data(results_shown: Sequence[Result]) -> bool:
    """Return whether some results have the same data, or a text that is the beginning of another one."""
    seen: set[str] = set()
    for result in results_shown:
        data = {CUT_FROM.get(part[0], part[0]) for part in result.setting.parts}
        if not seen.isdisjoint(data):
            return True
        seen |= data
    return False


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


def _ends(low: float, high: float, metric: str) -> str:
    """Return the ends of an interval."""
    return f"{show(low, metric, signed=True)} to {show(high, metric, signed=True)}"


def figure(group: Sequence[Result], metric: str) -> str:
    """Return the plot of the differences of a change in one metric as SVG: intervals, and the settings combined."""
    rows = []
    measured = in_metric(group, metric)
    for result, label in zip(measured, labels(measured, ["data"]), strict=True):
        low, high = result.ends or (math.nan, math.nan)
        is_settled = result.contrast["direction"] in SETTLED
        row = Row(
            label,
            f"{result.difference}  {result.contrast['direction']}",
            result.contrast["difference"],
            low,
            high,
            is_strong=is_settled,
        )
        rows.append(row)
    together = combined(measured)
    if together is not None:
        mean, interval, prediction = together.mean, together.interval, together.prediction
        shown = show(mean, metric, signed=True)
        rows.append(Row("mean of the settings", shown, mean, interval.low, interval.high))
        expected = _ends(prediction.low, prediction.high, metric)
        name = f"another {_other(measured)}"
        rows.append(Row(name, expected, mean, prediction.low, prediction.high))
    drawn, (axes,) = row_figure(rows, f"difference in {with_unit(metric)}")
    with style.drawing():
        axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
    return (
        style.to_svg(drawn, metric, title=f"Difference in {with_unit(metric)} in every setting")
        + "\n"
    )


CARD = """# {name}

**{answer}** {remarks}

This card has the differences that one change, {change}, makes in the [committed reports](README.md). {component}

{figures}

| setting | without it | difference | 95 % interval | verdict | adjusted p | seeds | parameters | FLOPs | report |
|---|---:|---:|---|---|---:|---:|---:|---:|---|
{rows}

{margins}Intervals are those of the reports, simultaneous within a family of contrasts of a report.{cautions}
Parameters (without embeddings) and FLOPs per token are those of the changed model against the other one{averages}.

{combination}{repeat}{generated}
"""
AVERAGES = ", for an average over several models the smallest and the largest value"
MARGINS = "The margin, the smallest difference that matters, is {margins}. "
COMBINATION = """Settings are combined by random effects (DerSimonian and Laird, with the interval of Hartung and
Knapp).{dependence}

"""
DEPENDENCE = " Some settings have the same data and are not independent, so the combined intervals are too short."
GENERATED = "Generated by `make docs` from the committed reports."
REPEAT = """To repeat it:

```sh
{commands}
```

{texts}"""
WRITE_TEXTS = "python benchmarks/texts.py data --shakespeare input.txt --pairs spa.txt"
TINY_SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SOURCE_OF_TEXTS = """The first command writes the texts and prints their sha256; its docstring has those of the reports.
`input.txt` is [tiny Shakespeare]({tiny_shakespeare}).
`spa.txt` is in `spa-eng.zip` of [manythings.org/anki](https://www.manythings.org/anki). The reports have the file of
July 2019; later files give other English sentences.

"""
ROW = (
    "| {setting} | {without} | {difference} | {interval} | {verdict} | {p} | {seeds} | {parameters} | {flops} "
    "| {report} |"
)


def _linked(report: str) -> str:
    """Return the name of a report, with a link if its page is in the folder of the cards."""
    name = f"`{report}`"
    return f"[{name}]({published_page(report)})" if report in PUBLISHED else name


def published_page(report: str) -> str:
    """Return the name of the published page of a report, which may be in a folder of reports."""
    _, _, name = report.rpartition("/")
    return f"{name}.html"


def card(
    change: tuple[str, str, str],
    group: Sequence[Result],
    reports: Path = REPORTS,
    folder: Path = RESULTS,
) -> str:
    """Return the page of a change; ``folder`` has the pages of authors that it links."""
    rows = []
    settings = settings_of(group)
    for result, setting in zip(group, settings, strict=True):
        report = _linked(result.report)
        if "model “" in setting:
            report += f": {result.contrast['name']}"
        parameters, flops = costs(result, reports)
        row = ROW.format(
            setting=setting,
            without=result.without,
            difference=result.with_metric,
            interval=result.interval,
            verdict=result.verdict,
            p=_p(result.contrast["adjusted_p"]),
            seeds=len(result.contrast["seeds"]),
            parameters=parameters,
            flops=flops,
            report=report,
        )
        rows.append(row)
    figures = []
    for number in range(len(metrics_of(group))):
        figures.append(f"![Differences of every setting](figures/{slug(change)}-{number}.svg)")
    field_changed, before, after = change
    is_average = any(len(result.pairs) > 1 for result in group)
    page = CARD.format(
        name=_capital(group[0].name),
        answer=answer(group),
        remarks=remarks(group),
        change=CHANGE.format(field=field_changed, before=before, after=after),
        component=_component(change, folder),
        figures="\n\n".join(figures),
        rows="\n".join(rows),
        margins=_margins(group),
        cautions=_cautions(group),
        averages=AVERAGES if is_average else "",
        combination=_combination(group),
        repeat=_repeat(group, reports),
        generated=GENERATED,
    )
    return re.sub(r" +\n", "\n", page)


def _combination(group: Sequence[Result]) -> str:
    """Return how the settings are combined, and whether some have the same data; empty if none are combined."""
    groups = [in_metric(group, metric) for metric in metrics_of(group)]
    together = [measured for measured in groups if combined(measured)]
    if not together:
        return ""
    shares_data = any(_share_data(measured) for measured in together)
    return COMBINATION.format(dependence=DEPENDENCE if shares_data else "")


def metrics_of(group: Sequence[Result]) -> list[str]:
    """Return the metrics of the results that can tell, that of most results first."""
    counts = Counter(result.metric for result in group if result.can_tell)
    return [metric for metric, _ in counts.most_common()]


def in_metric(group: Sequence[Result], metric: str) -> list[Result]:
    """Return the results in a metric that can tell."""
    return [result for result in group if result.can_tell and result.metric == metric]


def _capital(name: str) -> str:
    """Return a name with a capital first letter."""
    return name[:1].upper() + name[1:]


def _p(value: float | None) -> str:
    """Return an adjusted p."""
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _margins(group: Sequence[Result]) -> str:
    """Return the sentence on the margins of the results; empty without any."""
    margins = []
    for result in group:
        margin = result.contrast["margin"]
        if margin is not None:
            margins.append(f"{margin:g} in {readable(result.metric)}")
    return MARGINS.format(margins=_distinct(margins)) if margins else ""


CAUTIONS = " What limits the reports: {limits}."
CAUTION = "{limit} ({reports})"


def limits(results_shown: Sequence[Result]) -> list[str]:
    """Return what limits the reports of results, each with the names of the reports."""
    reports_of: dict[str, dict[str, None]] = {}
    for result in results_shown:
        for limit in (*result.warnings, *result.cautions):
            reports_of.setdefault(limit, {})[result.report] = None
    texts = []
    for limit, reports in reports_of.items():
        names = [f"`{report}`" for report in reports]
        texts.append(CAUTION.format(limit=limit, reports=", ".join(names)))
    return texts


def _cautions(group: Sequence[Result]) -> str:
    """Return the sentence on what limits the reports of results; empty without anything."""
    texts = limits(group)
    return CAUTIONS.format(limits="; ".join(texts)) if texts else ""


CHANGE = "`{field}`: {before} → {after}"
PAGE_OF_AUTHOR = "Its author's page, with the source: [{name}]({name}.md)."


def _component(change: tuple[str, str, str], folder: Path) -> str:
    """Return the formula of a component with the link to the catalogue.

    Of a plugin that is not registered, it has the link to the page of its author, if the folder has it; of another
    field nothing.
    """
    field_changed, _, after = change
    family, _, _ = field_changed.partition(".")
    name, _, _ = after.partition("(")
    try:
        summary = find_entry(family, name).entry.summary() if family in COMPONENTS else ""
    except HeadToHeadError:
        summary = ""
    if not summary:
        return PAGE_OF_AUTHOR.format(name=name) if (folder / f"{name}.md").is_file() else ""
    address = f"../reference/plugins.md#{family}{name}"
    if (ROOT / "docs" / "reference" / "catalogue" / f"{family}.md").is_file():
        address = f"../reference/catalogue/{family}.md#{name}"
    return f"[{name}]({address}): {summary}"


def costs(result: Result, reports: Path) -> tuple[str, str]:
    """Return by how much the change raises parameters and FLOPs, as texts; empty without a run of each variant.

    An average over several models has the smallest and the largest value.
    """
    of_variants = runs_of(result.report, reports).groupby("variant")[COUNTS].first()
    variants = [variant for variant, _ in result.pairs]
    against = [other for _, other in result.pairs]
    if not {*variants, *against} <= {*of_variants.index}:
        return "", ""
    raised = of_variants.loc[variants].to_numpy() / of_variants.loc[against].to_numpy() - 1
    parameters, flops = raised.T
    return _percent(parameters), _percent(flops)


def _percent(fractions: np.ndarray) -> str:
    """Return equal fractions as a percentage, and different ones as the smallest and the largest."""
    low, high = (f"{round(100 * end, 1) + 0.0:+.1f}" for end in (fractions.min(), fractions.max()))
    percentage = f"{low} %" if low == high else f"{low} to {high} %"
    return percentage.replace("-", "−")


COMMAND = re.compile(r"^h2h run .+$", re.MULTILINE)
"""The command that a report prints to train its study again."""


def _repeat(group: Sequence[Result], reports: Path) -> str:
    """Return the commands that repeat the reports; empty if no report has one."""
    commands = []
    need_texts = False
    for report in dict.fromkeys(result.report for result in group):
        page = reports / report / "report.md"
        command = _card_command(report) or _run_command(page)
        if command:
            commands.append(command)
        if page.is_file():
            need_texts |= bool(TEXTS.search(page.read_text(encoding="utf-8")))
    if not commands:
        return ""
    texts = ""
    if need_texts:
        commands.insert(0, WRITE_TEXTS)
        texts = SOURCE_OF_TEXTS.format(tiny_shakespeare=TINY_SHAKESPEARE)
    return REPEAT.format(commands="\n".join(commands), texts=texts)


def _card_command(report: str) -> str:
    """Return the command of a study of ``h2h card``, whose file names its plugin; empty for other reports."""
    file = ROOT / "experiments" / f"{report}.yaml"
    if not report.startswith(CARD_STUDY) or not file.is_file():
        return ""
    (plugin,) = yaml.safe_load(file.read_text(encoding="utf-8"))["plugins"]
    return f"h2h card experiments/{plugin}"


def _run_command(page: Path) -> str:
    """Return the command of a report's page, without the option that leaves MLflow out; empty without a page."""
    if not page.is_file():
        return ""
    printed = COMMAND.search(page.read_text(encoding="utf-8"))
    return printed[0].replace(" --no-tracking", "") if printed else ""


def write(folder: Path, reports: Path = REPORTS) -> None:
    """Write cards and their figures into ``docs/results``, and the heat map and the table into its ``README.md``.

    Pages of published reports, which are not committed beside their reports, are copied where they exist.
    """
    for name in PUBLISHED:
        page_of_report = reports / name / "index.html"
        if page_of_report.is_file():
            shutil.copy(page_of_report, folder / published_page(name))
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    for old in [*figures.glob(FIGURES), *_generated(folder)]:
        old.unlink()
    results_shown = results(reports)
    for change, group in by_change(results_shown).items():
        (folder / f"{slug(change)}.md").write_text(
            card(change, group, reports, folder), encoding="utf-8"
        )
        for number, metric in enumerate(metrics_of(group)):
            drawn = figure(group, metric)
            (figures / f"{slug(change)}-{number}.svg").write_text(drawn, encoding="utf-8")
    index = folder / "README.md"
    page = index.read_text(encoding="utf-8")
    page = between(page, "heat map", heat_map(results_shown))
    page = between(page, "table", table(results_shown))
    lines = [f"- {_capital(text)}." for text in limits(results_shown)]
    page = between(page, "limits", "\n".join(lines))
    names: dict[str, list[str]] = {}
    for name, reason in withdrawn(reports).items():
        names.setdefault(reason, []).append(name)
    reasons = [f"- {', '.join(group)}: {reason}" for reason, group in names.items()]
    page = between(page, "withdrawn", "\n".join(reasons) or "None.")
    page = between(page, "pages", _pages_of_authors(folder))
    index.write_text(page, encoding="utf-8")


def _generated(folder: Path) -> list[Path]:
    """Return the cards of an earlier call."""
    return [page for page in folder.glob("*.md") if GENERATED in page.read_text(encoding="utf-8")]


def _pages_of_authors(folder: Path) -> str:
    """Return a line per page that is not generated: its title and its answer, which is its first bold text."""
    lines = []
    for page in sorted(set(folder.glob("*.md")) - set(_generated(folder))):
        title, _, rest = page.read_text(encoding="utf-8").removeprefix("# ").partition("\n")
        bold = re.match(r"\s*\*\*(.*?)\*\*", rest, re.DOTALL)
        if bold and page.name not in NOT_CARDS:
            lines.append(f"- [{title}]({page.name}): {' '.join(bold[1].split())}")
    return "\n".join(lines) or "None yet."


def between(page: str, name: str, content: str) -> str:
    """Return a page with new content between the comments that name a place.

    Raises:
        ValueError: If the page does not have each of the two comments once.
    """
    start = f"<!-- {name} -->\n"
    end = f"<!-- end of {name} -->"
    if page.count(start) != 1 or page.count(end) != 1:
        raise ValueError(f"expected one '{start.strip()}' and one '{end}' in the page")
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}{content}\n{end}{after}"


if __name__ == "__main__":
    write(RESULTS)
