"""Descriptions of the notebooks, their experiments and pitfalls, from the YAML files beside this module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from headtohead.config.yaml_text import parse


@dataclass(frozen=True)
class Experiment:
    """One experiment of the page.

    Attributes:
        name: Name of the experiment file.
        question: The question, for a reader of the notebooks.
        position: Position on the page.
    """

    name: str
    question: str
    position: int


@dataclass(frozen=True)
class Notebook:
    """One notebook as its text describes it.

    Attributes:
        recipe: Name of the recipe with its choices.
        number: 1 to 5.
        title: The notebook's own title.
        about: What the notebook does, in a sentence.
        short: Its distinctive choices, in a few words.
        data: Its data.
        prints: Its printed results, digits as printed.
        remarks: Pitfalls of its code that are not in the configuration.
    """

    recipe: str
    number: int
    title: str
    about: str
    short: str
    data: str
    prints: Sequence[str]
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class PitfallText:
    """The texts about a pitfall; ``pitfalls.yaml`` explains the fields."""

    effect: str
    cause: str
    fix: str
    fix_note: str = ""
    effect_if_zero: str = ""


@cache
def load_descriptions(name: str) -> dict[str, Any]:
    """Return the content of a YAML file of this package."""
    text = (resources.files("headtohead_notebooks.page") / f"{name}.yaml").read_text("utf-8")
    content, _ = parse(text, f"{name}.yaml")
    return dict(content)


def label(kind: str, value: object) -> str:
    """Return the label of a value, or the value itself if it has no label.

    Args:
        kind: A section of ``labels.yaml``.
        value: A value of the configuration.
    """
    labels: dict[str, str] = load_descriptions("labels").get(kind, {})
    return labels.get(str(value), str(value))


EXPERIMENTS = tuple(Experiment(name, **fields) for name, fields in load_descriptions("experiments").items())
"""The experiments in the order in which they are run."""

NOTEBOOKS = tuple(Notebook(recipe, **fields) for recipe, fields in load_descriptions("notebooks").items())

PITFALL_TEXTS = {name: PitfallText(**fields) for name, fields in load_descriptions("pitfalls").items()}
