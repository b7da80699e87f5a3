"""The spellings of one name: in experiment files, of the module, of the class, for pip."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from headtohead.errors import HeadToHeadError

KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Names:
    """A name in kebab-case and what follows from it.

    Args:
        entry: What experiment files say, such as ``my-idea``.
        family: Where it is registered.
        used: Words that the module of the plugin uses for something else.

    Raises:
        HeadToHeadError: If the name is not in kebab-case, with the nearest one that is.
    """

    entry: str
    family: str
    used: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not KEBAB.fullmatch(self.entry):
            raise HeadToHeadError(
                f"'{' '.join(self.entry.split())}' is no name for a plugin; use small letters, "
                f"digits and single hyphens, such as '{suggested(self.entry)}'"
            )

    @property
    def module(self) -> str:
        """Name of the module; its beginning keeps it apart from packages such as torch."""
        return f"h2h_{self.entry.replace('-', '_')}"

    @property
    def distribution(self) -> str:
        """Name for pip."""
        return f"h2h-{self.entry}"

    @property
    def class_name(self) -> str:
        """Name of the class: in capitals, the family behind it where it would be taken."""
        plain = "".join(part.capitalize() for part in self.entry.split("-"))
        taken = plain in self.used or keyword.iskeyword(plain)
        return plain + self.family.capitalize() if taken else plain


def suggested(name: str) -> str:
    """Return the nearest name in kebab-case.

    >>> suggested("MyIdea"), suggested("my_idea"), suggested("2 Ideas!"), suggested("€")
    ('my-idea', 'my-idea', 'ideas', 'my-idea')
    """
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    words = re.findall(r"[a-z0-9]+", apart)
    while words and not words[0][0].isalpha():
        words.pop(0)
    return "-".join(words) or "my-idea"
