"""Numbers of steps and learning rates that follow from the configuration and the number of batches of an epoch."""

from __future__ import annotations

import math

from headtohead.schema.run_config import TrainConfig

ENDING = ("cosine", "wsd")
"""Values of ``train.schedule`` with an end: the learning rate reaches ``final_lr`` at the last step."""


def decays_to_an_end(train: TrainConfig) -> bool:
    """Return whether the learning rate is lowered towards the last step, which flattens the loss of any model.

    ``inverse-sqrt`` has no end: its rate does not depend on the number of steps, and falls by a tenth over the last
    fifth of them.
    """
    return train.schedule in ENDING and train.final_lr < train.lr


def planned_steps(train: TrainConfig, steps_per_epoch: int, tokens_per_epoch: int) -> int:
    """Return the number of optimizer steps: ``steps``, or those of ``epochs`` or ``tokens``, and at least one step.

    It is 0 with ``epochs: 0``, where the initial model is evaluated.
    """
    if train.steps is not None:
        return train.steps
    epochs = train.epochs if train.tokens is None else train.tokens / max(1, tokens_per_epoch)
    assert epochs is not None, "the configuration is resolved"
    return max(1, round(epochs * steps_per_epoch)) if epochs else 0


def evaluation_interval(train: TrainConfig, steps: int) -> int:
    """Return the number of steps between evaluations: ``evaluate_every``, or a tenth of the steps."""
    return train.evaluate_every or max(1, round(steps / 10))


def warmup_steps(train: TrainConfig, steps: int) -> int:
    """Return the number of steps of the warm-up: ``warmup_steps``, or a twentieth of the steps."""
    return steps // 20 if train.warmup_steps is None else train.warmup_steps


def learning_rate(train: TrainConfig, step: int, steps: int) -> float:
    """Return the learning rate of step ``step`` (from 1) of ``steps``.

    Warm-up is linear from 0. ``inverse-sqrt`` then falls with the square root of the step (Vaswani
    et al. 2017, section 5.3, with the peak set directly), ``cosine`` to ``final_lr`` at the last step
    (Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts), ``wsd`` stays, then falls linearly to ``final_lr``
    over the last ``decay_fraction`` of the steps, at most those after warm-up (Haegele et al. 2024, arXiv:2405.18392,
    section 3).
    """
    warmup = warmup_steps(train, steps)
    if step < warmup:
        return train.lr * step / warmup
    if train.schedule == "inverse-sqrt":
        return train.lr * math.sqrt(max(warmup, 1) / max(step, 1))
    if train.schedule == "cosine":
        progress = (step - warmup) / max(1, steps - warmup)
        return train.final_lr + (train.lr - train.final_lr) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    if train.schedule == "wsd":
        left = (steps - step) / max(1.0, min(train.decay_fraction * steps, steps - warmup))
        return train.final_lr + (train.lr - train.final_lr) * min(1.0, left)
    return train.lr
