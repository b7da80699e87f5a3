"""A template for each row of the verdict table, with the words of the metric and of the change."""

from dataclasses import replace
from typing import Any

import pytest

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.sentences import DEPENDENCES, SENTENCES, SUMS, sentence
from headtohead.analysis.study import Analysis
from headtohead.storage.frames import load_frames
from headtohead_judge.paired_tests import Interval
from headtohead_judge.verdicts import (
    BETTER,
    BY_LESS,
    BY_MORE,
    CANNOT_TELL,
    EQUIVALENT,
    IDENTICAL,
    LARGER,
    NO_VERDICT,
    NOT_SHOWN,
    SAME,
    SMALLER,
    WORSE,
    Direction,
    Judgement,
    Size,
)
from made.fake_study import Study, write_study

ROTARY = "rotary instead of sinusoidal"
NONE = "without positions"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    axes = {"positional": ["sinusoidal", "rotary"], "attention": ["split-heads", "gated"]}
    folder = write_study(tmp_path_factory.mktemp("runs"), Study(axes=axes, maps=False))
    return Analysis(load_frames(folder))


def judged(
    contrast: ContrastResult,
    name: str,
    verdict: tuple[Direction, Size | None],
    interval: tuple[float, float] | None,
    margin: float | None,
    **fields: Any,
) -> ContrastResult:
    """Return a contrast with another name and verdict; its mean is the middle of the interval."""
    direction, size = verdict
    ends = None if interval is None else Interval(*interval)
    assert contrast.estimate
    mean = sum(interval or (0.0, 0.0)) / 2
    difference = replace(contrast.estimate.difference, mean=mean)
    return replace(
        contrast,
        contrast=contrast.contrast.with_settings(contrast.contrast.settings[:1]),
        record=contrast.record.model_copy(update={"name": name, **fields}),
        estimate=replace(contrast.estimate, difference=difference, settings=()),
        judgement=Judgement(direction, size, 0.01, ends, margin),
    )


ROWS = [
    (
        NONE,
        (WORSE, BY_MORE),
        (-0.7, -0.5),
        0.03,
        "Without positions, {} worsens: −0.600 (−0.700 to −0.500).",
    ),
    (
        ROTARY,
        (BETTER, BY_LESS),
        (0.01, 0.02),
        0.03,
        "With rotary instead of sinusoidal, {} improves: +0.015 (+0.010 to +0.020); the difference is smaller than the "
        "margin of 0.03.",
    ),
    (
        ROTARY,
        (BETTER, None),
        (0.01, 0.05),
        0.03,
        "With rotary instead of sinusoidal, {} improves: +0.030 (+0.010 to +0.050).",
    ),
    (
        ROTARY,
        (BETTER, None),
        (0.01, 0.05),
        None,
        "With rotary instead of sinusoidal, {} improves: +0.030 (+0.010 to +0.050).",
    ),
    (
        NONE,
        (LARGER, None),
        (0.01, 0.05),
        None,
        "Without positions, {} rises: +0.030 (+0.010 to +0.050).",
    ),
    (
        NONE,
        (SMALLER, None),
        (-0.05, -0.01),
        None,
        "Without positions, {} falls: −0.030 (−0.050 to −0.010).",
    ),
    (
        ROTARY,
        (EQUIVALENT, None),
        (-0.017, 0.014),
        0.03,
        "With rotary instead of sinusoidal, {} changes by less than 0.03: −0.002 (−0.017 to +0.014).",
    ),
    (
        NONE,
        (EQUIVALENT, None),
        (-0.017, 0.014),
        0.03,
        "Without positions, {} changes by less than 0.03: −0.002 (−0.017 to +0.014).",
    ),
    (
        "independent instead of split heads",
        (NOT_SHOWN, None),
        (-0.002, 0.035),
        0.03,
        "Independent instead of split heads: no difference in {} shown, +0.017 (−0.002 to +0.035); it could be up to "
        "0.035 better or 0.002 worse.",
    ),
    (
        "independent instead of split heads",
        (NOT_SHOWN, None),
        (-0.052, 0.035),
        None,
        "Independent instead of split heads: no difference in {} shown, −0.008 (−0.052 to +0.035); it could be up to "
        "0.052 worse or 0.035 better.",
    ),
    (NONE, (IDENTICAL, None), (0.0, 0.0), 0.03, "Without positions: {} is the same in every seed."),
    (NONE, (SAME, None), None, None, "Without positions: the same by construction."),
    (NONE, (CANNOT_TELL, None), None, None, "Without positions: cannot tell in {}."),
    (NONE, (NO_VERDICT, None), None, None, "Without positions: no verdict in {}."),
]


@pytest.mark.parametrize(("name", "verdict", "interval", "margin", "text"), ROWS)
def test_every_verdict_has_its_sentence(
    study: Analysis,
    name: str,
    verdict: tuple[Direction, Size | None],
    interval: tuple[float, float] | None,
    margin: float | None,
    text: str,
) -> None:
    contrast = judged(study.families.factors.contrasts[0], name, verdict, interval, margin)
    assert sentence(study, contrast) == text.format("exact match")


def test_the_rows_cover_all_verdicts() -> None:
    assert {verdict for _, (verdict, _), *_ in ROWS} == set(SENTENCES)
    assert set(SENTENCES) - {LARGER, SMALLER} == set(SUMS) == set(DEPENDENCES)


def test_a_name_of_the_file_and_a_late_margin_are_stated(study: Analysis) -> None:
    contrast = study.families.factors.contrasts[0]
    named = judged(contrast, "gate", (EQUIVALENT, None), (-0.01, 0.02), 0.03, is_named=True)
    late = replace(named, late_margin=True)
    assert sentence(study, late, names_metric=False) == (
        "Gate: exact match changes by less than 0.03, +0.005 (−0.010 to +0.020); the margin was set after results "
        "existed."
    )
    better = judged(contrast, "gate", (BETTER, BY_MORE), (0.1, 0.3), 0.03, is_named=True)
    assert sentence(study, better) == "Gate: exact match improves, +0.200 (+0.100 to +0.300)."


@pytest.mark.parametrize(
    ("verdict", "interval", "text"),
    [
        (
            LARGER,
            (0.01, 0.03),
            "do not add up: together they are {higher} than the sum of their effects, +0.020 (+0.010 to +0.030)",
        ),
        (
            SMALLER,
            (-0.03, -0.01),
            "do not add up: together they are {lower} than the sum of their effects, −0.020 (−0.030 to −0.010)",
        ),
        (
            BETTER,  # the verdict of a factor with the same difference
            (0.01, 0.03),
            "do not add up: together they are {higher} than the sum of their effects, +0.020 (+0.010 to +0.030)",
        ),
        (
            NOT_SHOWN,
            (-0.01, 0.03),
            ": no interaction shown, +0.010 (−0.010 to +0.030); together they could be up to 0.030 higher or 0.010 "
            "lower than the sum",
        ),
        (EQUIVALENT, (-0.01, 0.02), "add up to within 0.05: +0.005 (−0.010 to +0.020)"),
    ],
)
@pytest.mark.parametrize("metric", ["test/exact_match", "test/loss"])
def test_two_changes_are_better_or_worse_than_the_sum_of_their_effects(
    analysed: Any, verdict: Direction, interval: tuple[float, float], text: str, metric: str
) -> None:
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"], "attention": ["split-heads", "gated"]},
        interactions=True,
        primary=metric,
    )
    (contrast,) = analysis.families.interactions.contrasts
    shown = judged(
        contrast, "x", (verdict, None), interval, 0.05 if verdict == EQUIVALENT else None
    )
    both = "Rotary instead of sinusoidal and a gated output"
    words = {"higher": "better", "lower": "worse"}
    if metric == "test/loss":
        words = {"higher": "worse", "lower": "better"}
    expected = text.format(**words)
    separator = "" if expected.startswith(":") else " "
    assert sentence(analysis, shown, names_metric=False) == f"{both}{separator}{expected}."


def test_an_effect_that_depends_on_the_size_has_both_sizes(analysed: Any) -> None:
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"], "size": ["width 8", "width 16"]},
        interactions=True,
        primary="test/loss",
    )
    (contrast,) = analysis.families.interactions.contrasts
    shown = judged(contrast, "x", (LARGER, None), (0.01, 0.03), None)
    assert sentence(analysis, shown) == (
        "The effect of rotary instead of sinusoidal on test loss is worse with width 16 than with width 8: +0.020 "
        "(+0.010 to +0.030)."
    )
