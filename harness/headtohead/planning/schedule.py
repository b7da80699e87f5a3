"""Numbers of steps and learning rates that follow from the configuration and the number of batches of an epoch."""

from __future__ import annotations

from headtohead.plugins.registry import calling, construct, find_schedule
from headtohead.plugins.schedule import Moment, Schedule
from headtohead.schema.run_config import TrainConfig


def schedule_of(train: TrainConfig) -> Schedule:
    """Return the learning-rate schedule of a configuration with parsed options; raises as `decays_to_an_end`."""
    return construct(find_schedule(train.schedule.name), train.schedule.options)


def decays_to_an_end(train: TrainConfig) -> bool:
    """Return whether the learning rate is lowered towards the last step, which flattens the loss of any model.

    ``inverse-sqrt`` has no end: its rate does not depend on the number of steps, and falls by a tenth over the last
    fifth of them.

    Raises:
        HeadToHeadError: If the schedule is not registered, or a plugin's schedule fails (see `calling`).
    """
    schedule = schedule_of(train)
    with calling(type(schedule)):
        final_rate = schedule.final_rate()
        return final_rate is not None and final_rate < train.lr


def planned_steps(train: TrainConfig, steps_per_epoch: int, tokens_per_epoch: int) -> int:
    """Return the number of optimizer steps: ``steps``, or those of ``epochs`` or ``tokens``, rounded, at least 1.

    It is 0 with ``epochs: 0``, where the initial model is evaluated. ``steps`` is returned as it is.

    Args:
        train: The section of a resolved configuration; one of the three fields is set (`AssertionError`).
        steps_per_epoch: Batches of an epoch.
        tokens_per_epoch: Target tokens in them.
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


def averaging_interval(train: TrainConfig, steps: int) -> int:
    """Return the number of steps that a mean training loss is of: ``evaluate_every``, or a tenth of the steps."""
    return train.evaluate_every or max(1, round(steps / 10))


def loss_interval(steps: int) -> int:
    """Return the number of steps between two values of the training loss: a fiftieth of the steps."""
    return max(1, round(steps / 50))


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
    return schedule_of(train).checked_rate(Moment(step, steps, warmup, train.lr))
