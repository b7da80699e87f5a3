"""Numbers of steps and learning rates that follow from the configuration and the number of batches of an epoch."""

from __future__ import annotations

from headtohead.schema.run_config import TrainConfig
from headtohead.schema.schedules import SCHEDULES, Moment, schedule_fields


def decays_to_an_end(train: TrainConfig) -> bool:
    """Return whether the learning rate is lowered towards the last step, which flattens the loss of any model.

    ``inverse-sqrt`` has no end: its rate does not depend on the number of steps, and falls by a tenth over the last
    fifth of them.
    """
    return "final_lr" in schedule_fields(train.schedule) and train.final_lr < train.lr


def planned_steps(train: TrainConfig, steps_per_epoch: int, tokens_per_epoch: int) -> int:
    """Return the number of optimizer steps: ``steps``, or those of ``epochs`` or ``tokens``, and at least one step.

    It is 0 with ``epochs: 0``, where the initial model is evaluated.
    """
    if train.steps is not None:
        return train.steps
    epochs = train.epochs
    if train.tokens is not None:
        epochs = train.tokens / max(1, tokens_per_epoch)
    assert epochs is not None, "the configuration is resolved"
    if epochs == 0:
        return 0
    return max(1, round(epochs * steps_per_epoch))


def evaluation_interval(train: TrainConfig, steps: int) -> int:
    """Return the number of steps between evaluations: ``evaluate_every``, or a tenth of the steps."""
    return train.evaluate_every or max(1, round(steps / 10))


def warmup_steps(train: TrainConfig, steps: int) -> int:
    """Return the number of steps of the warm-up: ``warmup_steps``, or a twentieth of the steps."""
    if train.warmup_steps is None:
        return steps // 20
    return train.warmup_steps


def learning_rate(train: TrainConfig, step: int, steps: int) -> float:
    """Return the learning rate of step ``step`` (from 1) of ``steps``.

    Warm-up is linear from 0. Then the rate is that of the schedule.
    """
    warmup = warmup_steps(train, steps)
    if step < warmup:
        return train.lr * step / warmup
    fields = {name: getattr(train, name) for name in schedule_fields(train.schedule)}
    return SCHEDULES[train.schedule](Moment(step, steps, warmup, train.lr), **fields)
