"""The differences that the committed reports measured: main contrasts of single changes, with their settings."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import yaml

from headtohead.config.clauses import change_clause
from headtohead.config.labels import listed, text
from headtohead.storage.metrics import readable, show
from headtohead_judge.paired_tests import Difference, Source
from headtohead_judge.verdicts import BY_MORE, CANNOT_TELL, IDENTICAL

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
RESULTS = ROOT / "docs" / "results"
NOT_COMPONENTS = ("train.", "data", "match", "size", "recipe")
"""Beginnings of fields that are no component of a model; their changes have no card."""

DEMO = "demo/"
"""Folder of the report of ``make demo``, which is not committed."""

OF_BASELINE = "baseline-"
"""Beginning of a value of ``match`` by which every variant has the size of the baseline."""

SAME_RUNS = re.compile(r"the same runs as (.+), counted once")
"""The reason of a contrast whose runs are those of another contrast, with its name."""

AS_CONFIGURED = {"sizes": "sizes as configured", "tuned": "not tuned"}
"""Text of a detail of a setting that is empty, where another setting has one."""

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
            data=distinct_text([part["data"] for part in parts]),
            width=distinct_text([str(part["width"]) for part in parts]),
            layers=distinct_text([_layers(part["layers"]) for part in parts]),
            steps=distinct_text([f"{part['steps']:,}" for part in parts]),
            passes=distinct_text([f"{part['passes']:.2g}" for part in parts if part["passes"]]),
            matched=distinct_text([part["matched"] for part in parts if part["matched"]]),
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


def distinct_text(values: Sequence[str]) -> str:
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
        return ends(low, high, self.metric)

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


def measured_results(reports: Path = REPORTS) -> list[Result]:
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


def metrics_of(group: Sequence[Result]) -> list[str]:
    """Return the metrics of the results that can tell, that of most results first."""
    counts = Counter(result.metric for result in group if result.can_tell)
    return [metric for metric, _ in counts.most_common()]


def in_metric(group: Sequence[Result], metric: str) -> list[Result]:
    """Return the results in a metric that can tell."""
    return [result for result in group if result.can_tell and result.metric == metric]


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


def ends(low: float, high: float, metric: str) -> str:
    """Return the ends of an interval."""
    return f"{show(low, metric, signed=True)} to {show(high, metric, signed=True)}"
