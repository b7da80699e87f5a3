"""The base of all records: their field types, and reading of a record with a one-line error.

A record is a JSON file of the run-directory format. Each file has one type, which planning creates, storage writes and
reports read: ``experiment.json`` an `ExperimentRecord`, ``run.json`` a `RunRecord`, ``status.json`` a `StatusRecord`,
``results.json`` a `ResultsRecord`, ``stack.json`` a `StackRecord`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from headtohead import files
from headtohead.config.labels import Scalar
from headtohead.errors import HeadToHeadError

R = TypeVar("R")

Count = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
"""A whole number that a float represents exactly."""

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number."""

NonNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


def _date(text: str) -> str:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not 1971 <= moment.year <= 9998:
        raise ValueError("expected a date from 1971 to 9998 with a time zone")
    return text


Date = Annotated[str, AfterValidator(_date)]
"""A date in ISO 8601 format with a time zone."""


def _axis_value(value: Scalar) -> Scalar:
    if isinstance(value, int | float) and not abs(value) < 2**63:
        raise ValueError("expected text, true, false, null or a finite number below 2**63")
    return value


AxisValue = Annotated[Scalar, AfterValidator(_axis_value)]
"""The value of an axis."""


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(strict=True, ge=0, lt=2**31)]


class Sides(TypedDict):
    """A size per side."""

    source: Size
    target: Size


Versions = Mapping[str, str | None]
"""Versions of headtohead, Python and torch, commit and platform."""


class Record(BaseModel):
    """A JSON object of the format; unknown fields are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="constants",
        defer_build=True,  # a command reads few of the records that it imports
    )

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return self.model_dump(mode="json")


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each field that is not a mapping."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, (*path, str(name)))
    else:
        yield ".".join(path), value


def read_record(kind: type[R], path: Path, max_bytes: int = files.MAX_BYTES) -> R | None:
    """Read a record from a JSON file; return None if there is no such file.

    Raises:
        HeadToHeadError: If the content is invalid; names the file and the first invalid field.
    """
    try:
        content = files.read_bytes(path, max_bytes)
    except FileNotFoundError:
        return None
    return parse_record(kind, content, path)


def required_record(kind: type[R], path: Path, advice: str, max_bytes: int = files.MAX_BYTES) -> R:
    """Read a record as `read_record`; a missing file is an error with the ``advice``."""
    record = read_record(kind, path, max_bytes)
    if record is None:
        raise HeadToHeadError(f"'{path.parent}' has no {path.name}; {advice}")
    return record


def parse_record(kind: type[R], content: bytes, path: Path) -> R:
    """Return the record of JSON text that was read from ``path``; raises as `read_record`."""
    value = files.parse_json(content, path)
    try:
        record: R = _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise HeadToHeadError(files.unreadable(path, _first_problem(error))) from error
    return record


def record_of(kind: type[R], fields: Mapping[str, Any]) -> R:
    """Return the record of computed values, which plugins can make invalid.

    Raises:
        HeadToHeadError: If a value is invalid; names the first one.
    """
    try:
        record: R = _adapter(kind).validate_python(dict(fields))
    except ValidationError as error:
        raise HeadToHeadError(_first_problem(error)) from error
    return record


def _first_problem(error: ValidationError) -> str:
    """Return the first invalid field and what is wrong with it, as a line."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if field:
        message = f"{field}: {message}"
    return " ".join(message.split())


_adapter: Any = cache(TypeAdapter)
