"""A constant learning rate after the warm-up.

Paper: none.
"""

from headtohead.plugin import Moment, Schedule, hookimpl


class Constant(Schedule):
    """The learning rate at the end of the warm-up."""

    phrase = "a constant learning rate"

    def rate(self, moment: Moment) -> float:
        return moment.lr


@hookimpl
def register_schedules() -> dict[str, type[Schedule]]:
    return {"constant": Constant}
