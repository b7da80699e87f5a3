"""``noise.csv`` of the judge and the page ``docs/results/noise.md``: how much scores vary over seeds and examples.

Both are generated from ``answer.json`` and ``results.csv`` of the committed reports that are not withdrawn.

``python docs/generator/noise.py`` writes them; ``make docs`` writes them with the other generated pages.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead.storage.metrics import readable, show
from headtohead_judge.noise import (
    CONFIDENCE,
    FILE,
    ExpectedDeviation,
    Noise,
    expected_deviation,
    pooled_by_study,
    read_noise,
)
from headtohead_judge.paired_tests import EXAMPLES, SEEDS
from results import REPORTS, RESULTS, committed_answers

METRICS = (
    "valid/loss",
    "test/loss",
    "test/bits_per_byte",
    "test/token_accuracy",
    "test/exact_match",
    "test/bleu",
    "test/chrf",
)
"""The metrics of the table."""

CHECKED_DEGREES = 30
"""Smallest number of degrees of freedom of a study whose deviation is compared with the expected one."""
CLOSE = 0.25
"""Relative error of an expected deviation that counts as close."""

TITLE = """# Noise

How much the scores of a variant vary over training seeds, in the committed reports. `h2h plan` uses these numbers
before a study has runs of its own.
"""
STUDIES = """## Over seeds and examples

Standard deviation of a score over seeds, pooled over the variants of a study, in its primary metric. Smallest and
largest are those of single variants. Examples: standard error of a difference that comes from the choice of the test
examples, the median of the contrasts.

| study | data | width | layers | steps | metric | mean sd | smallest and largest | degrees | examples |
|---|---|---|---|---|---|---:|---:|---:|---:|
"""
CHECK = """## Expected and measured

The standard deviation to expect of a new study is the random-effects mean over the studies with the same data, or
else the same dataset, or else all. Each study with at least {degrees} degrees of freedom is left out once. The interval
is a prediction interval at {confidence:.0f} %.

| study | metric | measured | expected | interval | studies | inside |
|---|---|---:|---:|---:|---:|---|
"""
SUMMARY = """
Of {number} studies, {close} are within {percent:.0f} % of the expected standard deviation, and {inside} inside the
interval.
"""


def noise(reports: Path = REPORTS) -> list[Noise]:
    """Return the rows of the table from the committed reports."""
    rows: list[Noise] = []
    for report, answer in committed_answers(reports):
        runs = pd.read_csv(reports / report / "results.csv", low_memory=False)
        rows += _over_seeds(report, answer, runs)
        rows += _over_examples(report, answer)
    return rows


def _over_seeds(report: str, answer: Mapping[str, Any], runs: pd.DataFrame) -> Iterator[Noise]:
    """Yield the deviations over seeds of each variant and metric; variants with collapsed runs are left out."""
    finished = runs[runs["state"] == "DONE"]
    for variant, of_variant in finished.groupby("variant", sort=False):
        collapse = answer["collapses"].get(variant)
        if collapse and collapse["collapsed"]:
            continue
        for metric in METRICS:
            if metric in of_variant:
                scores = of_variant[metric].dropna()
                sd = float(scores.std()) if len(scores) > 1 else 0.0
                if sd > 0:
                    title = str(of_variant["title"].iloc[0])
                    place = _place(report, answer["settings"][variant])
                    yield Noise(
                        **place,
                        metric=metric,
                        component=title,
                        source=SEEDS,
                        sd=sd,
                        degrees=len(scores) - 1,
                    )


def _over_examples(report: str, answer: Mapping[str, Any]) -> Iterator[Noise]:
    """Yield the standard error of each main contrast that comes from the choice of examples."""
    for contrast in answer["contrasts"]:
        for source in contrast["sources"] or ():
            is_shown = contrast["main"] and source["name"] == EXAMPLES and source["variance"] > 0
            if is_shown:
                _, against = contrast["pairs"][0]
                yield Noise(
                    **_place(report, answer["settings"][against]),
                    metric=contrast["metric"],
                    component=contrast["name"],
                    source=EXAMPLES,
                    sd=math.sqrt(source["variance"]),
                    degrees=source["degrees"],
                )


def _place(report: str, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that say where it was measured."""
    return {
        "report": report,
        "data": setting["data"],
        "width": setting["width"],
        "layers": " + ".join(map(str, setting["layers"])),
        "steps": setting["steps"],
    }


def table(rows: Sequence[Noise]) -> str:
    """Return the rows as CSV; deviations have six significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Noise)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(asdict(row) | {"sd": f"{row.sd:.6g}", "degrees": f"{row.degrees:.6g}"})
    return text.getvalue()


def page(rows: Sequence[Noise], primary: Mapping[str, str]) -> str:
    """Return the page from the rows and the primary metric of each report."""
    lines = []
    for report, metric in primary.items():
        own = [row for row in rows if row.report == report and row.metric == metric]
        if any(row.source == SEEDS for row in own):
            lines.append(_study_line(own))
    studies = STUDIES + "\n".join(lines) + "\n"
    return "\n".join([TITLE, studies, _checks(rows, primary)])


def _study_line(rows: Sequence[Noise]) -> str:
    """Return the line of a study; ``rows`` are those in its primary metric."""
    over_seeds = [row for row in rows if row.source == SEEDS]
    first = over_seeds[0]
    pooled = pooled_by_study(rows)[first.report]
    sds = [row.sd for row in over_seeds]
    errors = sorted(row.sd for row in rows if row.source == EXAMPLES)
    examples = show(errors[len(errors) // 2], first.metric) if errors else "–"
    cells = [
        f"[{first.report}](../../reports/{first.report}/report.md)",
        _distinct(row.data for row in over_seeds),
        _distinct(row.width for row in over_seeds),
        _distinct(row.layers for row in over_seeds),
        _distinct(f"{row.steps:,}" for row in over_seeds),
        readable(first.metric),
        show(pooled.sd, first.metric),
        f"{show(min(sds), first.metric)} to {show(max(sds), first.metric)}",
        f"{pooled.degrees:.0f}",
        examples,
    ]
    return f"| {' | '.join(cells)} |"


def _distinct(values: Iterator[object]) -> str:
    """Return the distinct values of a column of a study."""
    return ", ".join(dict.fromkeys(map(str, values)))


def _checks(rows: Sequence[Noise], primary: Mapping[str, str]) -> str:
    """Return the part of the page that compares measured and expected deviations."""
    lines = []
    num_close = 0
    num_inside = 0
    for report, metric in primary.items():
        own = [row for row in rows if row.report == report and row.metric == metric]
        measured = pooled_by_study(own).get(report)
        if measured is None or measured.degrees < CHECKED_DEGREES:
            continue
        expected = expected_deviation(rows, metric, own[0].data, without=report)
        if expected is None:
            continue
        is_inside = expected.low <= measured.sd <= expected.high
        num_inside += is_inside
        num_close += abs(measured.sd / expected.sd - 1) <= CLOSE
        lines.append(_check_line(report, metric, measured.sd, expected, is_inside))
    heading = CHECK.format(degrees=CHECKED_DEGREES, confidence=100 * CONFIDENCE)
    summary = SUMMARY.format(
        number=len(lines), close=num_close, percent=100 * CLOSE, inside=num_inside
    )
    return heading + "\n".join(lines) + "\n" + summary


def _check_line(
    report: str, metric: str, measured: float, expected: ExpectedDeviation, is_inside: bool
) -> str:
    """Return the line of a study that was left out."""
    cells = [
        report,
        readable(metric),
        show(measured, metric),
        show(expected.sd, metric),
        f"{show(expected.low, metric)} to {show(expected.high, metric)}",
        f"{expected.studies} of {expected.data or 'any data'}",
        "yes" if is_inside else "no",
    ]
    return f"| {' | '.join(cells)} |"


def write(reports: Path = REPORTS) -> None:
    """Write the table and the page."""
    FILE.write_text(table(noise(reports)), encoding="utf-8")
    primary = {report: answer["metric"] for report, answer in committed_answers(reports)}
    text = page(read_noise(), primary)
    (RESULTS / "noise.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
