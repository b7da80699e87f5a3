"""headtohead_judge judges scores of any training code: better, worse or noise.

The names below are what Python users call. They are imported at first use, so that importing the package, and
``headtohead-judge --help``, load no pandas or scipy.
"""

TYPE_CHECKING = False  # true for type checkers; importing it from `typing` costs time

if TYPE_CHECKING:
    from headtohead_judge.errors import HeadToHeadError as HeadToHeadError
    from headtohead_judge.judging import Judged as Judged
    from headtohead_judge.judging import judge as judge

__all__ = ["HeadToHeadError", "Judged", "judge"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if name == "HeadToHeadError":
        from headtohead_judge import errors

        return errors.HeadToHeadError
    from headtohead_judge import judging

    return getattr(judging, name)
