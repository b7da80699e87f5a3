"""A learning rate that is constant and then falls linearly: warm-up, stable, decay.

Paper: A. Hägele, E. Bakouch, A. Kosson, L. Ben Allal, L. Von Werra, M. Jaggi. "Scaling Laws and Compute-Optimal
Training Beyond Fixed Training Durations". NeurIPS 2024, arXiv:2405.18392, section 3.
"""

from pydantic import Field

from headtohead.plugin import Moment, Options, Schedule, hookimpl


class WSDOptions(Options):
    """Length and end of the decay."""

    final_lr: float = Field(0.0, ge=0, le=10**6, description="learning rate of the last step")
    decay_fraction: float = Field(
        0.2, gt=0, le=1, description="part of the steps in which the learning rate decays"
    )


class WSD(Schedule):
    """lr, then linearly to ``final_lr`` over the last ``decay_fraction`` of the steps, at most those after warm-up."""

    phrase = "a schedule with late decay[ of {decay_fraction:%}][ to {final_lr}]"
    Options = WSDOptions
    options: WSDOptions

    def rate(self, moment: Moment) -> float:
        final_lr = self.options.final_lr
        decay_steps = min(self.options.decay_fraction * moment.steps, moment.steps - moment.warmup)
        left = (moment.steps - moment.step) / max(1.0, decay_steps)
        return final_lr + (moment.lr - final_lr) * min(1.0, left)

    def final_rate(self) -> float:
        return self.options.final_lr


@hookimpl
def register_schedules() -> dict[str, type[Schedule]]:
    return {"wsd": WSD}
