"""Recompute the numbers of ``docs/results/noise.md`` from the runs of the reports, with other code than its generator.

    python benchmarks/recompute_noise.py

Deviations are computed with ``statistics`` from ``results.csv``, the expected ones with loops from the moments of
``scipy.stats.loggamma``. Prints the number of values, and those that differ; the exit code is 1 if any does.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from scipy import stats

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "reports"
PAGE = ROOT / "docs" / "results" / "noise.md"

SMALLEST = 1e-9
"""Smaller deviations are rounding."""

Study = tuple[str, str, float, int]
"""Name, data, variance and degrees of freedom of a study in a metric."""


def answers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each report that is not withdrawn, with its answer."""
    withdrawn = yaml.safe_load((REPORTS / "withdrawn.yaml").read_text(encoding="utf-8")) or {}
    for file in sorted(REPORTS.rglob("answer.json")):
        name = file.parent.relative_to(REPORTS).as_posix()
        if name not in withdrawn and not name.startswith("demo/"):
            yield name, json.loads(file.read_text(encoding="utf-8"))


def deviations(name: str, answer: dict[str, Any], metric: str) -> dict[str, tuple[float, int]]:
    """Return the standard deviation over seeds of each variant of a report, with its degrees of freedom."""
    scores: dict[str, list[float]] = {}
    with (REPORTS / name / "results.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["state"] == "DONE" and row.get(metric):
                scores.setdefault(row["variant"], []).append(float(row[metric]))
    found = {}
    for variant, values in scores.items():
        collapse = answer["collapses"].get(variant)
        has_collapsed = collapse is not None and collapse["collapsed"] > 0
        earlier = [scores[other] for other in list(scores)[: list(scores).index(variant)]]
        if any(_are_equal(values, other) for other in earlier):
            continue
        if len(values) > 1 and not has_collapsed and statistics.stdev(values) > SMALLEST:
            found[variant] = (statistics.stdev(values), len(values) - 1)
    return found


def _are_equal(scores: list[float], others: list[float]) -> bool:
    """Return whether two variants have the same scores, up to rounding."""
    return len(scores) == len(others) and all(
        abs(score - other) < SMALLEST for score, other in zip(scores, others, strict=True)
    )


def pooled(found: dict[str, tuple[float, int]]) -> tuple[float, int]:
    """Return the pooled variance of the variants, and its degrees of freedom."""
    degrees = sum(own for _, own in found.values())
    return sum(own * sd**2 for sd, own in found.values()) / degrees, degrees


def expected(studies: list[Study]) -> tuple[float, float, float]:
    """Return the expected deviation and its 80 % interval, from log variances as DerSimonian and Laird (1986)."""
    logs = []
    errors = []
    for _, _, variance, degrees in studies:
        log_of_mean_square = stats.loggamma(degrees / 2).mean() + math.log(2 / degrees)
        logs.append(math.log(variance) - log_of_mean_square)
        errors.append(stats.loggamma(degrees / 2).var())
    number = len(studies)
    total = sum(1 / error for error in errors)
    fixed = sum(log / error for log, error in zip(logs, errors, strict=True)) / total
    q = sum((log - fixed) ** 2 / error for log, error in zip(logs, errors, strict=True))
    between = max(0.0, (q - number + 1) / (total - sum(error**-2 for error in errors) / total))
    weights = [1 / (error + between) for error in errors]
    center = sum(w * log for w, log in zip(weights, logs, strict=True)) / sum(weights)
    spread = sum(w * (log - center) ** 2 for w, log in zip(weights, logs, strict=True))
    error = math.sqrt(max(1.0, spread / (number - 1)) / sum(weights))  # of Hartung and Knapp
    half = stats.t.ppf(0.9, number - 2) * math.hypot(error, math.sqrt(between))
    return math.exp(center / 2), math.exp((center - half) / 2), math.exp((center + half) / 2)


def alike(studies: list[Study], data: str, metric: str) -> list[Study]:
    """Return the studies of the same data, dataset or, except for losses, any data: the first with at least three."""
    dataset = data.split(" ")[0]
    for chosen in (
        [study for study in studies if study[1] == data],
        [study for study in studies if study[1].split(" ")[0] == dataset],
        [] if metric.endswith("/loss") else studies,
    ):
        if len(chosen) >= 3:
            return chosen
    return []


def number(text: str) -> float:
    """Return a printed number."""
    return float(text.replace("−", "-").replace(",", ""))


def digits(text: str) -> float:
    """Return half a unit of the last printed digit."""
    _, _, decimals = text.partition(".")
    return 0.5 * 10.0 ** -len(decimals) + 1e-12


class Checker:
    """Compares the rows of the page with recomputed numbers."""

    def __init__(self) -> None:
        self.answers = dict(answers())
        self.count = 0
        self.differences: list[str] = []

    def compare(self, name: str, text: str, value: float) -> None:
        """Compare a printed number with a value, up to the rounding of the text."""
        self.count += 1
        if abs(number(text) - value) > digits(text):
            self.differences.append(f"{name}: printed {text}, recomputed {value:.6g}")

    def study(self, row: list[str]) -> None:
        """Compare the row of a study."""
        name = row[0].strip("`")
        answer = self.answers[name]
        found = deviations(name, answer, answer["metric"])
        variance, degrees = pooled(found)
        sds = [sd for sd, _ in found.values()]
        smallest, _, largest = row[7].partition(" to ")
        self.compare(name, row[6], math.sqrt(variance))
        self.compare(name, smallest, min(sds))
        self.compare(name, largest, max(sds))
        self.compare(name, row[8], degrees)
        errors = example_errors(answer)
        if row[9] != "–" or errors:
            self.compare(name, row[9], statistics.median(errors))

    def expectation(self, row: list[str]) -> None:
        """Compare the row of a study that was left out."""
        name = row[0]
        answer = self.answers[name]
        metric = answer["metric"]
        own = deviations(name, answer, metric)
        measured = math.sqrt(pooled(own)[0])
        others = [study for study in self.studies(metric) if study[0] != name]
        middle, low, high = expected(alike(others, data_of(answer, own), metric))
        lower, _, upper = row[4].partition(" to ")
        self.compare(name, row[2], measured)
        self.compare(name, row[3], middle)
        self.compare(name, lower, low)
        self.compare(name, upper, high)
        is_inside = number(lower) <= measured <= number(upper)
        if is_inside != (row[6] == "yes"):
            self.differences.append(f"{name}: printed {row[6]}, but {measured:.6g} in {row[4]}")

    def studies(self, metric: str) -> list[Study]:
        """Return all studies with a metric."""
        studies = []
        for name, answer in self.answers.items():
            found = deviations(name, answer, metric)
            if found:
                studies.append((name, data_of(answer, found), *pooled(found)))
        return studies


def example_errors(answer: dict[str, Any]) -> list[float]:
    """Return the standard errors from examples of the main contrasts in the primary metric that are not identical."""
    errors = []
    for contrast in answer["contrasts"]:
        for source in contrast["sources"] or []:
            error = math.sqrt(source["variance"])
            is_shown = contrast["main"] and contrast["metric"] == answer["metric"]
            is_varied = contrast["direction"] != "identical"
            if is_shown and is_varied and source["name"] == "examples":
                errors.append(error)
    return errors


def data_of(answer: dict[str, Any], found: dict[str, tuple[float, int]]) -> str:
    """Return the data of the first variant of a study."""
    return str(answer["settings"][next(iter(found))]["data"])


def rows_of(page: Path) -> dict[str, list[list[str]]]:
    """Return the cells of the tables of a page by the title of their section."""
    tables: dict[str, list[list[str]]] = {}
    section = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| study"):
            tables.setdefault(section, []).append([cell.strip() for cell in line[1:-1].split("|")])
    return tables


def main() -> int:
    """Compare all rows of the page."""
    checker = Checker()
    tables = rows_of(PAGE)
    for row in tables["Over seeds and examples"]:
        checker.study(row)
    for row in tables.get("Expected and measured", []):
        checker.expectation(row)
    print(f"{checker.count} values recomputed, {len(checker.differences)} different")
    for difference in checker.differences:
        print(f"  {difference}")
    return int(bool(checker.differences))


if __name__ == "__main__":
    sys.exit(main())
