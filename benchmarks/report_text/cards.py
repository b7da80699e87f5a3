"""Cards of changes in ``docs/results``: every number of a card is that of the reports that its rows name.

The reports are those of ``reports/``, whose differences and intervals `recompute` recomputes. Costs are recomputed from
``results.csv``, and the mean over settings by random effects (DerSimonian and Laird, Hartung and Knapp, Higgins).
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from report_text.contrast_tables import has_verdict
from report_text.files import Finding
from report_text.numbers import METRICS, NUMBER, Expected, N, agrees, fits
from report_text.page import unescaped

COLUMNS = (
    "setting",
    "without it",
    "difference",
    "95 % interval",
    "verdict",
    "adjusted p",
    "seeds",
    "parameters",
    "FLOPs",
    "report",
)
"""Columns of the table of a card; the first row has them."""

MIN_COMBINED = 3
"""Smallest number of settings that are combined."""

MODEL = re.compile(r"model “[^”]*”")
SAME_RUNS = re.compile(r"the same runs as (.+), counted once")

Contrast = Mapping[str, Any]


def is_card(file: Path) -> bool:
    """Return whether a Markdown file is the card of a change."""
    return f"| {' | '.join(COLUMNS)} |" in file.read_text(encoding="utf-8")


def card_findings(file: Path, reports: Path) -> list[Finding]:
    """Return what is wrong with the numbers of a card.

    Args:
        file: The card.
        reports: The folder of the reports that its rows name.
    """
    lines = unescaped(file.read_text(encoding="utf-8")).splitlines()
    findings = []
    contrasts = []
    limits: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        if line.startswith("|") and "`" in line.split("|")[-2]:
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            row = dict(zip(COLUMNS, cells, strict=True))
            limits |= limits_of(row, reports)
            contrast = contrast_of_row(row, reports)
            if contrast is None:
                findings.append(Finding(number, f"no contrast of the report has the row '{line}'"))
            else:
                contrasts.append(contrast)
    for number, line in enumerate(lines, start=1):
        _, has_limits, text = line.partition("What limits the reports: ")
        if has_limits or (line.startswith("The margin") and any(limits.values())):
            findings += limit_findings(number, text, limits)
        if line.startswith("**") and not findings:
            answer = line.strip("*")
            for text_of_report in itertools.chain(limits, *limits.values()):
                answer = answer.replace(text_of_report, "")
            findings += answer_findings(number, answer, contrasts)
    return findings


def limits_of(row: Mapping[str, str], reports: Path) -> dict[str, list[str]]:
    """Return what limits the report of a row, by the report's name, in the order of its remarks."""
    name = row["report"].split("`")[1]
    answer, _ = answer_and_runs(reports / name)
    remarks = [own for own in answer["remarks"] if own["severity"] != "note" and own["limit"]]
    return {name: [own["limit"] for own in remarks]}


def limit_findings(line: int, text: str, limits: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return limits of reports that a card does not have, and what it has beside them."""
    findings = []
    for report, own in limits.items():
        for limit in own:
            found = re.search(rf"{re.escape(limit)} \(([^)]*)\)", text)
            if found is None or f"`{report}`" not in found[1]:
                findings.append(Finding(line, f"'{limit}' of {report} is missing"))
    rest = text
    for limit in itertools.chain(*limits.values()):
        rest = re.sub(rf"{re.escape(limit)} \([^)]*\)", "", rest)
    if rest.strip("; ."):
        findings.append(Finding(line, f"no report has the limit '{rest}'"))
    return findings


def contrast_of_row(row: Mapping[str, str], reports: Path) -> Contrast | None:
    """Return the contrast of a report that has the numbers and the verdict of a row, or None."""
    answer, runs = answer_and_runs(reports / row["report"].split("`")[1])
    for contrast in answer["contrasts"]:
        is_change = contrast["main"] and contrast["change"]
        if is_change and is_row(row, contrast, answer, runs):
            return contrast
    return None


@functools.cache
def answer_and_runs(folder: Path) -> tuple[Mapping[str, Any], pd.DataFrame]:
    """Return the content of a report's ``answer.json``, and its table of runs, also those of `same_runs`."""
    answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    runs = pd.read_csv(folder / "results.csv")
    tables = [runs]
    for variant, counted in same_runs(answer["contrasts"]).items():
        tables.append(runs[runs["variant"] == counted].assign(variant=variant))
    return answer, pd.concat(tables)


def same_runs(contrasts: Sequence[Contrast]) -> dict[str, str]:
    """Return the variants without runs of their own, with the variant whose runs are theirs.

    Their contrast is not counted, because it has the same runs as another contrast with the same right side.
    """
    by_name = {(own["family"], own["name"]): own for own in contrasts}
    same = {}
    for own in contrasts:
        found = SAME_RUNS.search(own["reason"] or "")
        if found is None or (own["family"], found[1]) not in by_name:
            continue
        first = by_name[own["family"], found[1]]
        for (variant, against), (counted, other) in zip(own["pairs"], first["pairs"], strict=False):
            if against == other:
                same[variant] = counted
    return same


def is_row(
    row: Mapping[str, str],
    contrast: Contrast,
    answer: Mapping[str, Any],
    runs: pd.DataFrame,
) -> bool:
    """Return whether a row has the numbers and the verdict of a contrast, and the settings of its right sides."""
    parts = [answer["settings"][against] for _, against in contrast["pairs"]]
    numbers = distinct(part["width"] for part in parts)
    for layers in dict.fromkeys(tuple(part["layers"]) for part in parts):
        numbers += layers
    numbers += distinct(part["steps"] for part in parts)
    numbers += distinct(part["passes"] for part in parts if part["passes"])
    is_setting = fits(MODEL.sub("", row["setting"].removeprefix(parts[0]["data"])), numbers)
    if not is_setting or not has_verdict(contrast, row["verdict"]):
        return False
    expected: list[tuple[str, Sequence[float | None]]] = [
        ("seeds", [len(contrast["seeds"])]),
        ("parameters", costs(contrast, runs, "parameters/non_embedding")),
        ("FLOPs", costs(contrast, runs, "flops_per_token")),
        ("without it", score_without(contrast, answer, runs)),
    ]
    if contrast["direction"] != "cannot tell":
        interval = contrast["interval"] or {"low": math.nan, "high": math.nan}
        is_identical = contrast["direction"] == "identical"
        ends = [] if is_identical else [interval["low"], interval["high"]]
        p = contrast["adjusted_p"]
        is_small = row["adjusted p"].startswith("<") and p < 0.001
        expected += [
            ("difference", [contrast["difference"]]),
            ("95 % interval", ends),
            ("adjusted p", [0.001 if is_small else p]),
        ]
    return all(fits(row[column].replace("-", "−"), values) for column, values in expected)


def score_without(contrast: Contrast, answer: Mapping[str, Any], runs: pd.DataFrame) -> list[float]:
    """Return the mean score of the right sides of a contrast; empty in another metric than the primary one."""
    if contrast["metric"] != answer["metric"]:
        return []
    means = runs.groupby("variant")[contrast["metric"]].mean()
    return [float(np.mean([means[against] for _, against in contrast["pairs"]]))]


def distinct(values: Iterable[float]) -> list[float]:
    """Return the distinct values, in their order."""
    return list(dict.fromkeys(values))


def costs(contrast: Contrast, runs: pd.DataFrame, column: str) -> list[float]:
    """Return by how many percent changed variants have more than the others: the smallest and the largest value.

    Equal percentages are one value. Pairs with a variant without runs are left out.
    """
    by_variant = dict(zip(runs["variant"], runs[column], strict=True))
    percentages = []
    for changed, against in contrast["pairs"]:
        if changed in by_variant and against in by_variant:
            percentages.append(100 * (by_variant[changed] / by_variant[against] - 1))
    return distinct([round(min(percentages), 1), round(max(percentages), 1)])


def answer_findings(line: int, text: str, contrasts: Sequence[Contrast]) -> list[Finding]:
    """Return sentences of a card that no report has, and the numbers that are not those of its contrasts."""
    by_metric: dict[str, list[Contrast]] = {}
    for own in contrasts:
        if own["direction"] != "cannot tell":
            by_metric.setdefault(own["metric"], []).append(own)
    single = [measured[0] for measured in by_metric.values() if len(measured) == 1]
    sentences = [own["sentence"] for own in single or contrasts[:1]]
    rest = MODEL.sub("", text)
    findings = []
    for sentence in sentences:
        if single and sentence not in rest:
            findings.append(Finding(line, f"the sentence of the report is '{sentence}'"))
        rest = rest.replace(sentence, "")
    not_counted = len(contrasts) - sum(map(len, by_metric.values()))
    rules: list[tuple[str, Expected]] = [(rf"{N} settings? cannot tell", [float(not_counted)])]
    for measured in sorted(by_metric.values(), key=len, reverse=True):
        rules += answer_rules(measured)
    return findings + number_findings(line, rest, rules)


def number_findings(line: int, text: str, rules: Sequence[tuple[str, Expected]]) -> list[Finding]:
    """Return the numbers of a text that differ from those of the rules, each applied once, or have no rule."""
    findings = []
    for pattern, values in rules:
        found = re.search(pattern, text)
        if found is None:
            continue
        for printed, value in zip(found.groups(), values, strict=True):
            if not agrees(printed, value):
                findings.append(Finding(line, f"{printed}, expected {value:.6g}, in '{found[0]}'"))
        text = text.replace(found[0], "", 1)
    for found in NUMBER.finditer(text):
        findings.append(Finding(line, f"no source for {found[0]} in '{text}'"))
    return findings


def answer_rules(measured: Sequence[Contrast]) -> list[tuple[str, Expected]]:
    """Return patterns of sentences on the settings of a metric, and their numbers.

    Args:
        measured: The contrasts in the metric; those that cannot tell are not among them.
    """
    column = measured[0]["metric"]
    metrics = "|".join(name for name, own in METRICS.items() if own == column)
    rules: list[tuple[str, Expected]] = [
        (rf"in {N} settings? in (?:{metrics})(?: \([^)]*\))?: too few", [float(len(measured))])
    ]
    if len(measured) >= MIN_COMBINED:
        pattern = (
            rf"Over {N} settings, the mean difference in [\w ]+ is {N} \({N} to {N}\)\. 95 % prediction interval "
            rf"for another (?:data set|setting): {N} to {N}"
        )
        rules.append((pattern, combined(measured)))
    differences = [own["difference"] for own in measured]
    numbers = []
    for own in measured:
        ends = own["interval"] or {"low": math.nan, "high": math.nan}
        numbers += [own["difference"], ends["low"], ends["high"]]
    settings = "; ".join([rf"[^;]*?{N} \({N} to {N}\), [a-z ]+"] * len(measured))
    rules.append((rf"by setting: {settings}", numbers))
    counts = Counter(own["direction"] for own in measured).most_common()
    verdicts = "(?:, | and )".join(rf"{N} {direction}" for direction, _ in counts)
    in_all = [len(measured), min(differences), max(differences), *(count for _, count in counts)]
    rules.append((rf"{N} differences in (?:{metrics}), from {N} to {N}: {verdicts}", in_all))
    return rules


def combined(contrasts: Sequence[Contrast]) -> Expected:
    """Return number, mean, and the ends of the intervals of the mean and of another setting."""
    means = np.array([own["difference"] for own in contrasts])
    variances = np.array([sum(part["variance"] for part in own["sources"]) for own in contrasts])
    count = len(means)
    fixed = 1 / variances
    deviations = (means - np.average(means, weights=fixed)) ** 2
    scale = fixed.sum() - (fixed**2).sum() / fixed.sum()
    between = max(0.0, (fixed @ deviations - (count - 1)) / scale)
    weights = 1 / (variances + between)
    mean = np.average(means, weights=weights)
    excess = weights @ (means - mean) ** 2 / (count - 1)
    error = math.sqrt(max(1.0, excess) / weights.sum())
    half = stats.t.ppf(0.975, count - 1) * error
    prediction = stats.t.ppf(0.975, count - 2) * math.sqrt(error**2 + between)
    ends = [mean - half, mean + half, mean - prediction, mean + prediction]
    return [float(count), float(mean), *map(float, ends)]
