"""A learning rate that falls along half a cosine.

Paper: I. Loshchilov, F. Hutter. "SGDR: Stochastic Gradient Descent with Warm Restarts". ICLR 2017, arXiv:1608.03983,
section 3, equation 5.
Departs from the paper: no restarts.
"""

import math

from pydantic import Field

from headtohead.plugin import Moment, Options, Schedule, hookimpl


class CosineOptions(Options):
    """The end of the cosine."""

    final_lr: float = Field(0.0, ge=0, le=10**6, description="learning rate of the last step")


class Cosine(Schedule):
    """From lr to ``final_lr`` at the last step, along half a cosine."""

    phrase = "a cosine schedule[ to {final_lr}]"
    Options = CosineOptions
    options: CosineOptions

    def rate(self, moment: Moment) -> float:
        final_lr = self.options.final_lr
        progress = (moment.step - moment.warmup) / max(1, moment.steps - moment.warmup)
        part = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        return final_lr + (moment.lr - final_lr) * part

    def final_rate(self) -> float:
        return self.options.final_lr


@hookimpl
def register_schedules() -> dict[str, type[Schedule]]:
    return {"cosine": Cosine}
