"""Numbers of steps that follow from the configuration and the number of batches of an epoch."""

from __future__ import annotations

from headtohead.schema.run_config import TrainConfig


def planned_steps(train: TrainConfig, steps_per_epoch: int) -> int:
    """Return the number of optimizer steps: ``steps``, or ``epochs`` passes and at least one step.

    It is 0 with ``epochs: 0``, where the initial model is evaluated.
    """
    if train.steps is not None:
        return train.steps
    assert train.epochs is not None, "the configuration is resolved"
    return max(1, round(train.epochs * steps_per_epoch)) if train.epochs else 0


def evaluation_interval(train: TrainConfig, steps: int) -> int:
    """Return the number of steps between evaluations: ``evaluate_every``, or a tenth of the steps."""
    return train.evaluate_every or max(1, round(steps / 10))
