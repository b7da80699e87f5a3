"""Learning-rate schedules: the learning rate of each step after the warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headtohead.plugins.entry import Entry, Options


@dataclass(frozen=True)
class Moment:
    """A step of the training, from 1, after the warm-up.

    Args:
        step: The step.
        steps: Number of steps of the training.
        warmup: Number of steps of the warm-up.
        lr: Learning rate at the end of the warm-up.
    """

    step: int
    steps: int
    warmup: int
    lr: float


class Schedule(Entry):
    """A learning-rate schedule; override ``rate``.

    The warm-up is the core's: ``rate`` is called from its last step on, on the processor, for every step and run.
    """

    hooks = ("rate",)

    def __init__(self, options: Options) -> None:
        self.options = options

    def rate(self, moment: Moment) -> float:
        """Return the learning rate of a step: a finite number, at least 0, that depends on the arguments alone."""
        raise NotImplementedError

    def final_rate(self) -> float | None:
        """Return the rate to which the schedule falls at the last step, or None if it does not fall towards an end.

        Losses flatten as such a rate falls, so that a report draws no conclusion from a flat end.
        """
        return None

    @classmethod
    def require_valid(cls) -> None:
        """Also compute the rates of a training of ten steps with the default options."""
        super().require_valid()
        schedule = cls(cls.Options())
        for step in range(2, 11):
            schedule.checked_rate(Moment(step, steps=10, warmup=2, lr=1e-3))

    def checked_rate(self, moment: Moment) -> float:
        """Return the rate of a step.

        Raises:
            TypeError: If it is not a finite number of at least 0.
        """
        rate = self.rate(moment)
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not is_number or not math.isfinite(rate) or rate < 0:
            raise TypeError(
                f"rate returned {rate!r} for step {moment.step} of {moment.steps}; expected a finite number of at "
                "least 0"
            )
        return float(rate)
