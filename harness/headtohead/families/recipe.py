"""Recipes: named starting configurations, such as a notebook's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead.families.entry import Entry


class Recipe(Entry):
    """A partial configuration, in the words of an experiment file's ``base``."""

    config: ClassVar[Mapping[str, Any]] = {}
