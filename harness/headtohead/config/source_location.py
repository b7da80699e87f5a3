"""Source locations of values, so that errors name file, line and field."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headtohead.errors import HeadToHeadError

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """The origin of values: an experiment file, a ``--set`` option, a recipe.

    ``lines`` maps fields to line numbers; it is empty for origins without lines. Relative paths among
    the values start at ``folder``; None leaves them unchanged.
    """

    label: str
    lines: Mapping[FieldPath, int] = field(default_factory=dict)
    folder: Path | None = None

    def line(self, path: FieldPath) -> int | None:
        """Return the line of the field, or of the nearest enclosing field with a known line."""
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return line
        return None


@dataclass(frozen=True)
class SourceLocation:
    """One field of a source; as text: ``experiments/x.yaml:14: design[0].product.masking[2]``."""

    source: Source
    path: FieldPath = ()

    def child(self, *parts: str | int) -> SourceLocation:
        """Return the location of a field inside this field."""
        return SourceLocation(self.source, self.path + parts)

    def error(self, message: str) -> HeadToHeadError:
        """Return an error whose message starts with this location."""
        return HeadToHeadError(f"{self}: {message}")

    def __str__(self) -> str:
        line = self.source.line(self.path)
        label = self.source.label
        if line is not None:
            label = f"{label}:{line}"
        return f"{label}: {dotted(self.path)}" if self.path else label


def located(value: Any, folder: Path) -> Any:
    """Return the path, or each path of a list, as an absolute path; URLs stay unchanged."""
    if isinstance(value, list | tuple):
        return [located(item, folder) for item in value]
    if not isinstance(value, str) or "://" in value:
        return value
    return os.path.abspath(folder / Path(value).expanduser())


def dotted(path: Iterable[str | int]) -> str:
    """Format a field path: ``design[0].product.masking[2]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif text:
            text += f".{part}"
        else:
            text = part
    return text


def shown(value: Any) -> str:
    """Format a value as in YAML, at most 60 characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    if len(text) > 60:
        return f"{text[:57]}…"
    return text
