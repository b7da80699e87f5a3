"""A line of a ledger: the decision on a change, with strict reading of its JSON."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from headtohead_judge import files
from headtohead_judge.errors import HeadToHeadError


@dataclass(frozen=True)
class Decision:
    """The decision on a change, a line of the ledger.

    Attributes:
        candidate: Name of the changed variant.
        incumbent: Name of the variant that it was compared with.
        metric: The metric.
        higher_is_better: Direction of the metric.
        difference: Mean difference, paired by seed.
        variance: Variance of the differences over seeds.
        test_variance: The variance in the test: ``variance``, moderated towards that of earlier decisions.
        test_degrees: Degrees of freedom of ``test_variance``.
        decimals_error: Largest error of ``difference`` due to the decimals of the scores, which widens the test.
        p: One-sided p-value of "better".
        level: The level that LORD++ gave the decision.
        kept: Whether the candidate became the incumbent: ``p`` is at most ``level``.
        scores: Scores of the candidate by seed.
        incumbent_scores: Scores of the incumbent by seed.
        digest: SHA-256 of the line before it and of the other fields, so that a changed name is found, too.
    """

    candidate: str
    incumbent: str
    metric: str
    higher_is_better: bool
    difference: float
    variance: float
    test_variance: float
    test_degrees: float
    decimals_error: float
    p: float
    level: float
    kept: bool
    scores: dict[str, float]
    incumbent_scores: dict[str, float]
    digest: str

    @property
    def degrees(self) -> int:
        """Degrees of freedom of ``variance``."""
        return len(self.scores) - 1

    @property
    def line(self) -> str:
        """The decision as a line of JSON, without the line break."""
        return _json(asdict(self))

    def digest_after(self, earlier: str) -> str:
        """Return the digest of this decision after a line with the digest ``earlier``."""
        content = asdict(self)
        del content["digest"]
        return hashlib.sha256((earlier + _json(content)).encode()).hexdigest()

    @classmethod
    def read(cls, line: str, where: Path) -> Decision:
        """Return the decision of a line of JSON; ``where`` names the line in errors.

        Raises:
            HeadToHeadError: If the line is not JSON, has a key twice, or a field is missing, unknown or invalid; the
                message names the first such field.
        """
        content = files.parse_json(line.encode(), where, unique_keys=True)
        try:
            return cls(**_checked(content))
        except _FieldError as error:
            raise HeadToHeadError(files.unreadable(where, str(error))) from error


class _FieldError(Exception):
    """A field of a decision is missing, unknown or invalid."""


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _checked(content: Any) -> dict[str, Any]:
    """Return the fields of a decision; whole numbers become floats."""
    if not isinstance(content, dict):
        raise _FieldError("Input should be an object")
    values: dict[str, Any] = {}
    for field in fields(Decision):
        if field.name not in content:
            raise _FieldError(f"{field.name}: Field required")
        value = content[field.name]
        if field.type == "str":
            values[field.name] = _text(value, field.name)
        elif field.type == "bool":
            values[field.name] = _flag(value, field.name)
        elif field.type == "float":
            values[field.name] = _number(value, field.name)
        else:
            values[field.name] = _scores(value, field.name)
    for name in content:
        if name not in values:
            raise _FieldError(f"{name}: Extra inputs are not permitted")
    return values


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _FieldError(f"{name}: Input should be a valid string")
    return value


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise _FieldError(f"{name}: Input should be a valid boolean")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _FieldError(f"{name}: Input should be a valid number")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise _FieldError(f"{name}: Input should be a finite number")
    return number


def _scores(value: Any, name: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise _FieldError(f"{name}: Input should be a valid dictionary")
    return {seed: _number(score, f"{name}.{seed}") for seed, score in value.items()}
