"""Reports warn of runs with the same losses at every step, and not of runs with the same score."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headtohead.analysis.findings import rules
from headtohead.analysis.study import Analysis
from made.fake_study import with_losses

STEPS = range(100, 1001, 100)


def warnings(
    analysed: Callable[..., Analysis], copied: Mapping[tuple[str, int], tuple[str, int]]
) -> list[str]:
    """Return the warnings about a study in which some runs have the losses of another run."""

    def score(axes: Mapping[str, Any], seed: int) -> float:
        return round(
            0.4 + 0.005 * int(np.random.default_rng([seed, len(axes["positional"])]).integers(4)), 3
        )

    def loss(variant: str, seed: int, step: int) -> float:
        name, seed = copied.get((variant, seed), (variant, seed))
        return (
            3 - step / 1000 + float(np.random.default_rng([len(name), seed, step]).normal(0, 0.01))
        )

    axes = {"positional": ["sinusoidal", "rotary"]}
    frames = analysed(axes=axes, score=score, one_at_a_time=True).frames
    found = rules.find(Analysis(with_losses(frames, loss, STEPS)))
    return [remark.text for remark in found if remark.severity == "warning"]


def test_equal_scores_of_a_coarse_metric_are_no_warning(analysed: Callable[..., Analysis]) -> None:
    assert warnings(analysed, {}) == []


def test_equal_losses_at_every_step_are_a_warning(analysed: Callable[..., Analysis]) -> None:
    copied = {
        ("rotary", 2): ("rotary", 1),
        ("rotary", 3): ("sinusoidal", 4),
        ("rotary", 5): ("sinusoidal", 5),
    }
    (text,) = warnings(analysed, copied)
    assert text.startswith("The same values at every step: ")
    for pair in (
        "seeds 1, 2 of 'rotary'",
        "seed 3 of 'rotary' and seed 4 of 'sinusoidal'",
        "seed 5 of 'rotary' and seed 5 of 'sinusoidal'",
    ):
        assert pair in text
    assert text.endswith("; check that these are separate runs.")
