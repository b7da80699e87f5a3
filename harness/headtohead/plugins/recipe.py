"""Recipes: named starting configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead.plugins.entry import Entry


class Recipe(Entry):
    """A partial configuration that the ``base`` of an experiment file can name."""

    config: ClassVar[Mapping[str, Any]] = {}
    """The same nested mapping as ``base`` in an experiment file."""

    @classmethod
    def require_valid(cls) -> None:
        """Also require that ``config`` is a mapping."""
        super().require_valid()
        if not isinstance(cls.config, Mapping):
            raise TypeError(f"config is {cls.config!r}; expected a mapping")
