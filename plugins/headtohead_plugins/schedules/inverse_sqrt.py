"""A learning rate that falls with the square root of the step, as in the first Transformer.

Paper: A. Vaswani, N. Shazeer, N. Parmar, J. Uszkoreit, L. Jones, A. N. Gomez, L. Kaiser, I. Polosukhin. "Attention Is
All You Need". NeurIPS 2017, arXiv:1706.03762, section 5.3.
Departs from the paper: ``train.lr`` is the peak, which the paper derives from d_model.
"""

import math

from headtohead.plugin import Moment, Schedule, hookimpl


class InverseSqrt(Schedule):
    """lr · √(warm-up steps / step); it does not depend on the number of steps."""

    phrase = "an inverse square-root schedule"

    def rate(self, moment: Moment) -> float:
        return moment.lr * math.sqrt(max(moment.warmup, 1) / max(moment.step, 1))


@hookimpl
def register_schedules() -> dict[str, type[Schedule]]:
    return {"inverse-sqrt": InverseSqrt}
