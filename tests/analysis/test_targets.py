"""Steps to target: runs that never reach it are infinite, in medians, tests, tables and files."""

import csv
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from headtohead.analysis.study import Analysis
from headtohead.analysis.targets import VariantTarget, first_step
from headtohead.report.content import Report
from headtohead.report.writing import write_files
from headtohead.statistics.paired_tests import holm, sign_test_p
from headtohead.storage.experiment import LooksRecord
from headtohead.storage.frames import Frames, load_frames
from made import case_table
from made.fake_study import with_losses

LOSS = "valid/loss"
BASE, FAST, HALF, NEVER = (
    f"{positional}-{attention}-padding-causal"
    for positional, attention in (
        ("sinusoidal", "split-heads"),
        ("rotary", "split-heads"),
        ("none", "split-heads"),
        ("none", "independent-heads"),
    )
)


def reaches(slug: str, seed: int) -> float:
    """Return the step from which the validation loss is 1 instead of 2."""
    return {FAST: 200.0 + 100 * (seed == 1), HALF: 200.0 if seed <= 3 else math.inf, NEVER: math.inf}.get(slug, 600.0)


def study(
    frames: Frames, target: float | str = 1.5, reaches: Callable[[str, int], float] = reaches, looks: int = 0
) -> Analysis:
    frames = with_losses(
        frames, lambda slug, seed, step: 1.0 if step >= reaches(slug, seed) else 2.0, range(100, 1000, 100)
    )
    metrics = frames.record.metrics.model_copy(update={"target": {LOSS: target}})
    record = LooksRecord(seeds=(6, 12)[:looks], taken=(6,), since="2020-01-01T00:00:00Z") if looks else None
    return Analysis(
        dataclasses.replace(
            frames,
            record=frames.record.model_copy(update={"metrics": metrics, "looks": record}),
            runs=frames.runs.assign(**{"system/step_ms": 50.0}),
        )
    )


def found(analysis: Analysis) -> dict[str, VariantTarget]:
    (target,) = analysis.targets
    return dict(target.variants)


def test_the_sign_test_equals_the_binomial_test() -> None:
    generator = np.random.default_rng(0)
    for n in range(1, 15):
        values, against = generator.integers(0, 4, (2, n)).astype(float)
        values[values == 3] = against[against == 3] = math.inf
        wins, losses = int((values > against).sum()), int((values < against).sum())
        expected = scipy.stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        assert sign_test_p(values, against) == pytest.approx(expected)


def test_the_first_evaluation_that_reaches_the_target_counts() -> None:
    generator = np.random.default_rng(1)
    steps = np.arange(10, 110, 10)
    for _ in range(50):
        values, target = generator.normal(size=10), float(generator.normal())
        values[generator.integers(10)] = math.nan
        for higher in (False, True):
            reached = [
                s for s, value in zip(steps, values, strict=True) if (value >= target if higher else value <= target)
            ]
            assert first_step(steps, values, target, higher) == min(reached, default=math.inf)


@pytest.fixture(scope="module")
def frames(quickstart: Path) -> Frames:
    return load_frames(quickstart)


def test_runs_that_never_reach_the_target_are_infinite(frames: Frames) -> None:
    variants = found(study(frames))
    assert variants[BASE].steps == dict.fromkeys(range(1, 7), 600.0)
    assert variants[BASE].verdict is None
    assert variants[FAST].steps == {1: 300.0} | dict.fromkeys(range(2, 7), 200.0)
    assert variants[FAST].median_seconds == pytest.approx(10.0)
    assert (variants[HALF].reached, variants[HALF].median_steps) == (3, math.inf)
    assert (variants[NEVER].reached, variants[NEVER].median_steps, variants[NEVER].later) == (0, math.inf, 6)
    assert (variants[HALF].earlier, variants[HALF].later) == (3, 3)
    p_values = {slug: sign_test_p(list(v.steps.values()), [600.0] * 6) for slug, v in variants.items() if slug != BASE}
    assert [variants[slug].holm_p for slug in p_values] == pytest.approx(holm(list(p_values.values())))


def test_a_verdict_needs_a_significant_sign_test(analysed: Callable[..., Analysis]) -> None:
    frames = analysed(axes={"positional": ["sinusoidal", "rotary"]}).frames

    def faster(slug: str, seed: int) -> float:
        return 200.0 if slug == "rotary" else 600.0

    assert found(study(frames, reaches=faster))["rotary"].verdict == "faster"
    assert found(study(frames, reaches=lambda slug, seed: 800 - faster(slug, seed)))["rotary"].verdict == "slower"
    assert found(study(frames, reaches=faster, looks=2))["rotary"].verdict == "inconclusive"
    tied = found(study(frames, reaches=lambda slug, seed: math.inf))["rotary"]
    assert (tied.holm_p, tied.verdict, tied.earlier, tied.later) == (1.0, "inconclusive", 0, 0)


def test_the_baseline_reaches_its_own_final_value(frames: Frames) -> None:
    variants = found(study(frames, "baseline", lambda slug, seed: math.inf if slug == BASE else 300.0))
    assert variants[BASE].steps == dict.fromkeys(range(1, 7), 100.0)
    assert variants[FAST].steps == dict.fromkeys(range(1, 7), 100.0)
    assert found(study(frames, "baseline"))[BASE].steps == dict.fromkeys(range(1, 7), 600.0)


def test_table_and_files_have_infinite_steps(frames: Frames, tmp_path: Path, without_figures: None) -> None:
    paths = write_files(Report(study(frames)), tmp_path)
    markdown = paths.markdown.read_text(encoding="utf-8")
    assert "## Steps to target" in markdown
    assert "Target: validation loss 1.500" in markdown
    assert "| 3 of 6 | ∞ | ∞ | 3, 3 | 1.000 | inconclusive |" in markdown
    rows = list(csv.DictReader(paths.csv.read_text(encoding="utf-8").splitlines()))
    steps = {(row["variant"], row["seed"]): row[f"steps_to_target/{LOSS}"] for row in rows}
    assert steps[NEVER, "1"] == "inf"
    assert float(steps[FAST, "1"]) == 300
    (target,) = json.loads(paths.json.read_text(encoding="utf-8"), parse_constant=pytest.fail)["targets"]
    assert target["variants"][NEVER]["median_steps"] == "inf"
    expected = {"runs": 6, "reached": 6, "median_steps": 200.0, "median_seconds": 10.0, "earlier": 6, "later": 0}
    assert target["variants"][FAST].items() > (expected | {"reason": None}).items()
    assert target["variants"][FAST].keys() == {*expected, "holm_p", "verdict", "reason"}


@case_table("target", [1.5, "baseline"], default=1)
def test_variants_on_other_data_are_not_compared_with_the_baseline(
    target: float | str, analysed: Callable[..., Analysis]
) -> None:
    frames = analysed(axes={"data": ["addition", "copy"], "positional": ["sinusoidal", "rotary"]}).frames
    steps = {"addition-sinusoidal": 600.0, "addition-rotary": 300.0, "copy-sinusoidal": 200.0, "copy-rotary": 100.0}
    variants = found(study(frames, target, reaches=lambda slug, seed: steps[slug]))
    assert {slug: variant.verdict for slug, variant in variants.items()} == {
        "addition-sinusoidal": None, "addition-rotary": "faster", "copy-sinusoidal": None, "copy-rotary": None
    }  # fmt: skip
    assert variants["addition-rotary"].holm_p == sign_test_p([300.0] * 6, [600.0] * 6)
    assert variants["copy-rotary"].reason == "the variants use different data sets"
    assert variants["copy-rotary"].reached == (6 if target == 1.5 else 0)
