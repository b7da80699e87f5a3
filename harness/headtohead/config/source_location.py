"""Where a value was written, so that every error can say file, line and field."""

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
    """A text that values come from: an experiment file, a ``--set`` option, a recipe.

    ``lines`` holds the line of each field; it is empty where there are no lines to speak of.
    ``folder`` is where relative paths among the values start; None leaves them as they are.
    """

    label: str
    lines: Mapping[FieldPath, int] = field(default_factory=dict)
    folder: Path | None = None

    def line(self, path: FieldPath) -> int | None:
        """Return the line of the field, or of the nearest field around it that has one."""
        for length in range(len(path), -1, -1):
            found = self.lines.get(path[:length])
            if found is not None:
                return found
        return None


@dataclass(frozen=True)
class Place:
    """One field of a source; as text: ``experiments/x.yaml:14: design[0].product.masking[2]``."""

    source: Source
    path: FieldPath = ()

    def child(self, *parts: str | int) -> Place:
        """Return the place of a field inside this one."""
        return Place(self.source, self.path + parts)

    def error(self, message: str) -> HeadToHeadError:
        """Return the error to raise for what stands at this place."""
        return HeadToHeadError(f"{self}: {message}")

    def __str__(self) -> str:
        line = self.source.line(self.path)
        label = self.source.label if line is None else f"{self.source.label}:{line}"
        return f"{label}: {dotted(self.path)}" if self.path else label


def located(value: Any, folder: Path) -> Any:
    """Return a path, or each path of a list, made absolute; an address is left as it is."""
    if isinstance(value, list | tuple):
        return [located(one, folder) for one in value]
    if not isinstance(value, str) or "://" in value:
        return value
    return os.path.abspath(folder / Path(value).expanduser())


def dotted(path: Iterable[str | int]) -> str:
    """Write a path as users read it: ``design[0].product.masking[2]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: Any) -> str:
    """Write a value as it would stand in YAML, short enough for one line of an error."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
