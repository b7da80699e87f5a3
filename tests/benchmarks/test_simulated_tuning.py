"""Simulated studies of equal variants with tuned learning rates."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from headtohead.storage.tuning import Rule


@pytest.fixture(scope="module")
def simulation(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulated_tuning")


def test_without_noise_every_variant_has_the_same_rate_near_the_minimum(
    simulation: ModuleType,
) -> None:
    for sweep in simulation.SWEEPS:
        sweep = sweep._replace(sd=0.0)
        runs = simulation.TuningRuns(sweep, np.random.default_rng(1), 0.0)
        tuned = simulation.tune(runs)
        (rate,) = tuned.chosen.values()
        near = np.linspace(sweep.rates[0], sweep.rates[-1], 1000)
        minimum = min(near, key=lambda value: simulation.loss_at(sweep, value))
        assert 1 / 1.5 < rate / minimum < 1.5
        assert tuned.rule == Rule.MORE_SEEDS  # a cubic curve without noise is no parabola


def test_the_choice_in_the_interval_leaves_fewer_wrong_directions_than_the_best_of_the_grid(
    simulation: ModuleType,
) -> None:
    sweep = simulation.SWEEPS[3]
    nulls = simulation.tuned_nulls(sweep, 60, np.random.default_rng(1))
    assert nulls.grid > 0.15
    assert nulls.with_choice <= nulls.chosen < nulls.grid
    assert nulls.with_choice <= 0.1
    assert nulls.wider > 1.1
    assert 0.5 < nulls.estimated_sd / nulls.sd < 2


def test_noise_at_neighbouring_rates_has_the_given_correlation(simulation: ModuleType) -> None:
    sweep = simulation.SWEEPS[0]
    generator = np.random.default_rng(2)
    noise = np.array(
        [simulation.TuningRuns(sweep, generator, 0.5).losses[3:5, 0] for _ in range(2000)]
    )
    assert np.corrcoef(noise.T)[0, 1] == pytest.approx(0.5, abs=0.05)
    assert noise.std(axis=0) == pytest.approx(sweep.sd, rel=0.1)
