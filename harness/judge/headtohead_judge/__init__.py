"""Statistics for scores of any training code: is a variant better than the baseline, or is it noise?

The names below are what Python users call. They are imported at first use, so that importing the package, and
``headtohead-judge --help``, load no pandas or scipy.
"""

TYPE_CHECKING = False  # true for type checkers; importing it from `typing` costs time

if TYPE_CHECKING:
    from headtohead_judge.errors import HeadToHeadError as HeadToHeadError
    from headtohead_judge.judging import Judged as Judged
    from headtohead_judge.judging import judge as judge
    from headtohead_judge.sameness import Sameness as Sameness
    from headtohead_judge.sameness import same as same

__all__ = ["HeadToHeadError", "Judged", "Sameness", "judge", "same"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name == "HeadToHeadError":
        from headtohead_judge import errors

        return errors.HeadToHeadError
    if name in ("Sameness", "same"):
        from headtohead_judge import sameness

        return getattr(sameness, name)
    from headtohead_judge import judging

    return getattr(judging, name)
