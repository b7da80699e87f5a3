"""Learning rates after warm-up: a function per value of ``train.schedule``.

The parameters of a function after the first are the fields of ``train`` that the schedule depends on. The run hash
and the texts about these fields are derived from them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Moment:
    """A step of the training, from 1, after the warm-up; ``lr`` is the learning rate at the end of the warm-up."""

    step: int
    steps: int
    warmup: int
    lr: float


def constant(moment: Moment) -> float:
    """Return the learning rate at the end of the warm-up."""
    return moment.lr


def inverse_sqrt(moment: Moment) -> float:
    """Return a rate that falls with the square root of the step.

    Vaswani et al. 2017 (arXiv:1706.03762), section 5.3, with the peak set directly.
    """
    return moment.lr * math.sqrt(max(moment.warmup, 1) / max(moment.step, 1))


def cosine(moment: Moment, final_lr: float) -> float:
    """Return a rate that falls to ``final_lr`` at the last step, along half a cosine.

    Loshchilov & Hutter 2017 (arXiv:1608.03983), without restarts.
    """
    progress = (moment.step - moment.warmup) / max(1, moment.steps - moment.warmup)
    return final_lr + (moment.lr - final_lr) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def wsd(moment: Moment, final_lr: float, decay_fraction: float) -> float:
    """Return a rate that stays, then falls linearly to ``final_lr``.

    It falls over the last ``decay_fraction`` of the steps, at most those after warm-up. Haegele et al. 2024
    (arXiv:2405.18392), section 3.
    """
    decay_steps = min(decay_fraction * moment.steps, moment.steps - moment.warmup)
    left = (moment.steps - moment.step) / max(1.0, decay_steps)
    return final_lr + (moment.lr - final_lr) * min(1.0, left)


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "inverse-sqrt": inverse_sqrt,
    "cosine": cosine,
    "wsd": wsd,
}
"""The schedules by their names in ``train.schedule``."""


def schedule_fields(name: str) -> frozenset[str]:
    """Return the fields of ``train`` that a schedule depends on.

    >>> sorted(schedule_fields("wsd"))
    ['decay_fraction', 'final_lr']
    """
    return _parameters(SCHEDULES[name])


@cache
def _parameters(schedule: Callable[..., float]) -> frozenset[str]:
    _moment, *fields = inspect.signature(schedule).parameters
    return frozenset(fields)


def unused_fields(name: str) -> frozenset[str]:
    """Return the fields of ``train`` that other schedules depend on, and this one does not."""
    all_fields = frozenset[str]().union(*map(schedule_fields, SCHEDULES))
    return all_fields - schedule_fields(name)


def schedules_with(field: str) -> tuple[str, ...]:
    """Return the names of the schedules that depend on a field.

    >>> schedules_with("final_lr")
    ('cosine', 'wsd')
    """
    return tuple(name for name in SCHEDULES if field in schedule_fields(name))
