"""The expected standard deviation of a study over training seeds, from the committed studies of this project.

``noise.csv`` has a row for each variant, metric and source of variance. It is generated from the reports; the page
``docs/results/noise.md`` describes it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy import special

from headtohead_judge.paired_tests import SEEDS
from headtohead_judge.random_effects import MIN_SETTINGS, combine_estimates

FILE = Path(__file__).with_name("noise.csv")

CONFIDENCE = 0.8
"""Confidence of the interval of an expected standard deviation."""


@dataclass(frozen=True)
class Noise:
    """A row of ``noise.csv``: a standard deviation, and where it was measured.

    Attributes:
        report: The name of the study.
        data: Dataset, with the name of its file, download or language pair.
        width: ``d_model``.
        layers: Numbers of layers, such as ``1 + 1`` for encoder and decoder.
        steps: Steps of a run.
        metric: The metric.
        component: The variant; for examples, the contrast.
        source: `SEEDS` for the standard deviation of a score over seeds, or ``examples`` for the standard error of a
            difference that the choice of test examples causes.
        sd: The standard deviation; that of examples can be 0.
        degrees: Its degrees of freedom.
    """

    report: str
    data: str
    width: int
    layers: str
    steps: int
    metric: str
    component: str
    source: str
    sd: float
    degrees: float


@dataclass(frozen=True)
class Pooled:
    """A standard deviation pooled over the variants of a study, with its degrees of freedom."""

    sd: float
    degrees: float


@dataclass(frozen=True)
class ExpectedDeviation:
    """The expected standard deviation of a study over seeds.

    Attributes:
        sd: Its median.
        low: Lower end of its interval at the confidence `CONFIDENCE`.
        high: Upper end.
        studies: Number of studies that it is computed from.
        data: What their data have in common: a dataset with its file, a dataset, or empty for any data.
    """

    sd: float
    low: float
    high: float
    studies: int
    data: str


def read_noise(file: Path = FILE) -> list[Noise]:
    """Return the rows of the table; none if there is no file."""
    if not file.is_file():
        return []
    rows = []
    with file.open(encoding="utf-8", newline="") as lines:
        for cells in csv.DictReader(lines):
            row = Noise(
                report=cells["report"],
                data=cells["data"],
                width=int(cells["width"]),
                layers=cells["layers"],
                steps=int(cells["steps"]),
                metric=cells["metric"],
                component=cells["component"],
                source=cells["source"],
                sd=float(cells["sd"]),
                degrees=float(cells["degrees"]),
            )
            rows.append(row)
    return rows


def pooled_by_study(rows: Iterable[Noise]) -> dict[str, Pooled]:
    """Return the standard deviation over seeds of each study, pooled over its variants.

    Args:
        rows: Rows of one metric; those of other sources than seeds do not count.
    """
    sums: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row.source == SEEDS:
            squares, degrees = sums.get(row.report, (0.0, 0.0))
            sums[row.report] = squares + row.degrees * row.sd**2, degrees + row.degrees
    return {
        report: Pooled(math.sqrt(squares / degrees), degrees)
        for report, (squares, degrees) in sums.items()
    }


def expected_deviation(
    rows: Sequence[Noise], metric: str, data: str, without: str = ""
) -> ExpectedDeviation | None:
    """Return the expected standard deviation of a new study over seeds, with its prediction interval.

    It is computed from at least `MIN_SETTINGS` studies of the same data, else of the same dataset, else of any data;
    None with too few studies. Losses of different datasets are not
    compared, because their units are tokens of different vocabularies.

    Args:
        rows: The rows of the table.
        metric: The metric of the scores.
        data: The data as in `Noise.data`.
        without: The name of a study that does not count, without its folder.
    """
    of_metric = []
    for row in rows:
        _, _, study = row.report.rpartition("/")
        if row.metric == metric and study != without:
            of_metric.append(row)
    levels = [data, _dataset(data)]
    if not metric.endswith("/loss"):
        levels.append("")
    for common in dict.fromkeys(levels):
        alike = [row for row in of_metric if common in (row.data, _dataset(row.data), "")]
        studies = pooled_by_study(alike)
        if len(studies) >= MIN_SETTINGS:
            return _expected([*studies.values()], common)
    return None


def _dataset(data: str) -> str:
    """Return the dataset without the name of its file."""
    dataset, _, _ = data.partition(" ")
    return dataset


def _expected(studies: Sequence[Pooled], data: str) -> ExpectedDeviation:
    """Return the standard deviation to expect after these studies, by a random-effects mean of its logarithm.

    The logarithm of a sample variance with d degrees of freedom has the mean log σ² + ψ(d/2) − log(d/2) and the
    variance ψ′(d/2), if the values are normally distributed.
    """
    logs = []
    variances = []
    for study in studies:
        half = study.degrees / 2
        bias = special.digamma(half) - math.log(half)
        logs.append(math.log(study.sd) - bias / 2)
        variances.append(float(special.polygamma(1, half)) / 4)
    combined = combine_estimates(logs, variances, CONFIDENCE)
    return ExpectedDeviation(
        sd=math.exp(combined.mean),
        low=math.exp(combined.prediction.low),
        high=math.exp(combined.prediction.high),
        studies=combined.settings,
        data=data,
    )
