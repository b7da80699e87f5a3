"""Descriptions of the notebooks, their experiments and pitfalls, from the YAML files beside this module.

The files explain their fields. No field of the code repeats them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

from headtohead.config.yaml_text import parse

DEFAULTS = {"remarks": (), "fix_note": "", "effect_if_zero": ""}
"""Optional fields."""


@cache
def load_descriptions(name: str) -> dict[str, Any]:
    """Return the content of a YAML file of this package."""
    file = resources.files("headtohead_notebooks.page") / f"{name}.yaml"
    text = file.read_text("utf-8")
    content, _ = parse(text, f"{name}.yaml")
    return dict(content)


def _described(name: str, key: str) -> dict[str, SimpleNamespace]:
    """Return the entries of a file by their key, which is an attribute too."""
    entries = {}
    for value, fields in load_descriptions(name).items():
        attributes = {**DEFAULTS, key: value, **fields}
        entries[value] = SimpleNamespace(**attributes)
    return entries


EXPERIMENTS = tuple(_described("experiments", "name").values())
"""The experiments in the order in which they are run."""
NOTEBOOKS = tuple(_described("notebooks", "recipe").values())
PITFALL_TEXTS = _described("pitfalls", "name")
