"""The standard deviation over seeds to expect of a study: pooled, combined, and covered by its interval."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from headtohead_judge.noise import Noise, expected_deviation, pooled_by_study, read_noise

ROW = Noise(
    report="a",
    data="text novel",
    width=64,
    layers="4",
    steps=1000,
    metric="test/loss",
    component="rotary",
    source="training seeds",
    sd=0.01,
    degrees=5,
)


def rows_of(*studies: tuple[str, str, float, float]) -> list[Noise]:
    """Return a row for each study from its name, data, standard deviation and degrees of freedom."""
    rows = []
    for report, data, sd, degrees in studies:
        rows.append(replace(ROW, report=report, data=data, sd=sd, degrees=degrees))
    return rows


def test_a_study_pools_the_variances_of_its_variants_over_seeds() -> None:
    rows = [
        replace(ROW, sd=0.01, degrees=5),
        replace(ROW, sd=0.02, degrees=10),
        replace(ROW, sd=9.0, source="examples"),
    ]
    (pooled,) = pooled_by_study(rows).values()
    assert pooled.sd == pytest.approx(math.sqrt((5 * 0.01**2 + 10 * 0.02**2) / 15))
    assert pooled.degrees == 15


def test_equal_studies_predict_their_own_deviation() -> None:
    rows = rows_of(*((name, "text novel", 0.01, 60) for name in "abcd"))
    expected = expected_deviation(rows, "test/loss", "text novel")
    assert expected is not None
    unbiased = 0.01 * math.exp((math.log(30) - special.digamma(30)) / 2)
    assert expected.sd == pytest.approx(unbiased)
    error = math.sqrt(special.polygamma(1, 30) / 4 / 4)
    factor = math.exp(stats.t.ppf(0.9, 2) * error)
    assert (expected.low, expected.high) == pytest.approx((unbiased / factor, unbiased * factor))


def test_studies_of_the_same_data_come_first_then_the_dataset_then_all() -> None:
    of_novel = [(name, "text novel", 0.01, 30) for name in "abc"]
    of_text = [(name, "text poem", 0.1, 30) for name in "de"]
    others = [(name, "mqar", 1.0, 30) for name in "fgh"]
    rows = rows_of(*of_novel, *of_text, *others)
    rows = [replace(row, metric="test/exact_match") for row in rows]
    cases = {
        "text novel": ("text novel", 3),
        "text poem": ("text", 5),
        "text": ("text", 5),
        "texts": ("", 8),
        "mqar": ("mqar", 3),
    }
    for data, common in cases.items():
        expected = expected_deviation(rows, "test/exact_match", data)
        assert expected is not None
        assert (expected.data, expected.studies) == common
    without = expected_deviation(rows, "test/exact_match", "text novel", without="a")
    assert without is not None
    assert (without.data, without.studies) == ("text", 4)


def test_fewer_than_three_studies_expect_nothing() -> None:
    rows = rows_of(("a", "mqar", 0.1, 5), ("b", "mqar", 0.1, 5))
    assert expected_deviation(rows, "test/loss", "mqar") is None
    assert expected_deviation([], "test/loss", "mqar") is None
    assert expected_deviation(rows * 2, "test/bleu", "mqar") is None


def test_the_interval_contains_the_deviation_of_another_study_in_about_80_of_100_cases() -> None:
    generator = np.random.default_rng(5)
    num_inside = 0
    for _ in range(1000):
        sds = 0.01 * np.exp(generator.normal(0, 0.3, size=9))
        degrees = generator.integers(5, 60, size=9)
        measured = sds * np.sqrt(generator.chisquare(degrees) / degrees)
        studies = [
            (str(number), "mqar", float(sd), float(own))
            for number, (sd, own) in enumerate(zip(measured[:8], degrees[:8], strict=True))
        ]
        expected = expected_deviation(rows_of(*studies), "test/loss", "mqar")
        assert expected is not None
        num_inside += expected.low <= sds[8] <= expected.high
    assert 760 <= num_inside <= 850


def test_a_missing_table_has_no_rows(tmp_path: Path) -> None:
    assert read_noise(tmp_path / "noise.csv") == []


def test_losses_of_different_datasets_are_not_compared() -> None:
    rows = rows_of(
        *((name, data, 0.1, 30) for name, data in zip("abc", ("mqar", "copy", "text"), strict=True))
    )
    assert expected_deviation(rows, "test/loss", "mqar") is None
    scores = [replace(row, metric="test/exact_match") for row in rows]
    expected = expected_deviation(scores, "test/exact_match", "mqar")
    assert expected is not None
    assert (expected.data, expected.studies) == ("", 3)
