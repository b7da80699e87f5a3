"""The names derived from the name of a plugin: module, class and distribution."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from headtohead.errors import HeadToHeadError

KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class PluginNames:
    """The name of a plugin in kebab-case, and the names derived from it.

    Args:
        entry: The name in experiment files, such as ``my-idea``.
        family: The family of the plugin.
        reserved: Names that the module of the plugin uses for other objects.

    Raises:
        HeadToHeadError: If the name is not in kebab-case; the message suggests a name.
    """

    entry: str
    family: str
    reserved: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not KEBAB.fullmatch(self.entry):
            raise HeadToHeadError(
                f"'{' '.join(self.entry.split())}' is not a valid plugin name; use lower-case letters, "
                f"digits and single hyphens, such as '{suggest_name(self.entry)}'"
            )

    @property
    def module(self) -> str:
        """Name of the module; the prefix avoids clashes with packages such as torch."""
        return f"h2h_{self.entry.replace('-', '_')}"

    @property
    def distribution(self) -> str:
        """Name of the package for pip."""
        return f"h2h-{self.entry}"

    @property
    def class_name(self) -> str:
        """Name of the class in CamelCase; the family is appended to a reserved name."""
        plain = "".join(part.capitalize() for part in self.entry.split("-"))
        is_reserved = plain in self.reserved or keyword.iskeyword(plain)
        return plain + self.family.capitalize() if is_reserved else plain


def suggest_name(name: str) -> str:
    """Return a similar name in kebab-case.

    >>> suggest_name("MyIdea"), suggest_name("my_idea"), suggest_name("2 Ideas!"), suggest_name("€")
    ('my-idea', 'my-idea', 'ideas', 'my-idea')
    """
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    words = re.findall(r"[a-z0-9]+", separated)
    while words and not words[0][0].isalpha():
        words.pop(0)
    return "-".join(words) or "my-idea"
