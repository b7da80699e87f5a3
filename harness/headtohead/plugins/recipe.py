"""Recipes: named starting configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from headtohead.plugins.entry import Entry


class Recipe(Entry):
    """A partial configuration that the ``base`` of an experiment file can name."""

    config: ClassVar[Mapping[str, Any]] = {}
    """The same nested mapping as ``base`` in an experiment file."""

    @classmethod
    def values(cls) -> dict[str, Any]:
        """Return the fields of ``config`` by dotted path."""
        return dict(_flat("", cls.config))


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{path}{name}.", value)
        else:
            yield f"{path}{name}", value
