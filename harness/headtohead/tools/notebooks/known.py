"""What is known of the notebooks without running anything, read from the YAML files beside this."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from headtohead.config.yaml_text import parse


@dataclass(frozen=True)
class Experiment:
    """One experiment of the page.

    Attributes:
        name: Of its file.
        asks: Its question, in the words of a reader of the notebooks.
        compares: What its answer compares; see `headtohead.tools.notebooks.answers`.
        rank: Its place on the page.
        only_full: Whether the quick form leaves it out.
    """

    name: str
    asks: str
    rank: int
    compares: tuple[dict[str, Any], ...] = ()
    only_full: bool = False


@dataclass(frozen=True)
class Notebook:
    """One notebook, as its text has it.

    Attributes:
        recipe: Name of the recipe that has its choices.
        number: Its place among the five.
        title: Its own.
        about: What it is, in a sentence.
        short: What it chose, in a few words.
        data: What it reads.
        prints: What its text prints, digits as printed.
        text: Pitfalls of its code that are no choices of a configuration.
        sentences: Some of its own, for pictures.
        words: Some that its reading of text changes, for pictures.
    """

    recipe: str
    number: int
    title: str
    about: str
    short: str
    data: str
    prints: tuple[str, ...]
    text: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """A pitfall in plain words.

    Attributes:
        did: What it did, in a sentence with the names of measured numbers in it.
        why: How that comes about.
        mend: Which field to set, and to what, as it stands in an experiment file.
        mended: What that does, or what else it needs.
        did_none: Said instead of ``did`` where the first number in it is 0.
    """

    did: str
    why: str
    mend: str
    mended: str = ""
    did_none: str = ""


@cache
def known(name: str) -> dict[str, Any]:
    """Return the content of one of the YAML files of this room."""
    text = (resources.files("headtohead.tools.notebooks") / f"{name}.yaml").read_text("utf-8")
    content, _ = parse(text, f"{name}.yaml")
    return dict(content)


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(one) if isinstance(one, list) else one for key, one in fields.items()}


EXPERIMENTS = tuple(Experiment(name, **_tuples(fields)) for name, fields in known("questions").items())
"""The experiments, in the order in which they are run."""

NOTEBOOKS = tuple(Notebook(recipe, **_tuples(fields)) for recipe, fields in known("about").items())
"""The notebooks, in their order."""

EXPLANATIONS = {name: Explanation(**fields) for name, fields in known("pitfalls").items()}
"""Every pitfall, by its name."""
