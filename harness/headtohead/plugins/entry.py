"""Base class of all plugin entries: options, name, summary, and compatibility with a configuration."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headtohead.errors import HeadToHeadError, nearest
from headtohead.schema.roles import ROLES
from headtohead.schema.sections import Options as Options

if TYPE_CHECKING:
    from headtohead.schema.run_config import RunConfig


BaseOptions = Options
"""``Options`` under a name that the class attribute ``Options`` of an entry does not shadow."""


@dataclass(frozen=True)
class Setting:
    """The use of an entry in a variant, for checks of compatibility.

    Args:
        config: The variant.
        role: The role of the entry: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        longest: Length of the longest sentence per side (``"source"``, ``"target"``) in tokens,
            boundary tokens included. A side is missing before its data has been prepared.
    """

    config: RunConfig
    role: str
    longest: Mapping[str, int]


class Entry:
    """Base of everything that a plugin registers.

    The registry holds classes, not objects. A plugin's hook returns them by name; users select an
    entry by this name in an experiment file and write its options beside it.
    """

    Options: ClassVar[type[BaseOptions]] = Options
    """Options of the entry. They are validated when an experiment file is read."""

    entry_name: ClassVar[str] = "unnamed"
    """Name of the entry in experiment files, for messages. The registry sets it."""

    phrase: ClassVar[str] = ""
    """What people call the entry: a noun phrase, or one that starts with ``with`` or ``without``.

    Titles, tables and sentences use it: ``"without positions"``, ``"independent heads"``. ``{option}`` is the value of
    an option. A part in brackets is used if an option in it is not at its default: ``"rotary[ with base {theta}]"``.
    By default, ``with`` and the name. It is not part of the hash of a source: no result depends on it.
    """

    role_defaults: ClassVar[Mapping[str, str]] = {}
    """Entries that replace this entry in other roles when a user gives a name without roles.

    For example ``{"cross": "none"}``: the name applies to encoder and decoder only.
    """

    # Methods by which entries of the family act, and names that the attribute properties of an entry can contain.
    hooks: ClassVar[tuple[str, ...]] = ()
    known_properties: ClassVar[frozenset[str]] = frozenset()

    reads: ClassVar[tuple[str, ...]] = ()
    """What a component or dataset reads besides its source, for example ``("scale.json", "{table}", "$SCALE")``.

    A name is a file or a folder, relative to the file of the class; ``{option}``, the path or paths that an option has;
    or ``$NAME``, an environment variable. The content is hashed like the source: after a change, runs are STALE, and a
    dataset has another data hash. A plugin that reads something else while it is imported or built, and a dataset that
    does so while it is loaded, is an error. Options of a dataset that are marked by ``FilePath`` need no declaration.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    """Import names of the packages that a launcher or logger requires."""

    @classmethod
    def require(cls) -> None:
        """Raise HeadToHeadError if a package is missing. Called before training."""
        for package in cls.packages:
            if importlib.util.find_spec(package) is None:
                raise HeadToHeadError(
                    f"'{cls.entry_name}' requires the package {package}; run pip install {package}"
                )

    @classmethod
    def require_valid(cls) -> None:
        """Raise TypeError if an attribute of the class is invalid. Called when a plugin is registered.

        A wrong property, for example, would switch an invariant off.
        """
        if not (isinstance(cls.Options, type) and issubclass(cls.Options, BaseOptions)):
            raise TypeError(
                f"Options is {cls.Options!r}; expected a subclass of headtohead.plugin.Options"
            )
        cls.Options().model_dump_json()
        for role, name in cls.role_defaults.items():
            if role not in ROLES or not isinstance(name, str):
                raise TypeError(
                    f"role_defaults is {cls.role_defaults!r}; expected names by role: {', '.join(ROLES)}"
                )
        properties = getattr(cls, "properties", None) or frozenset()
        if not isinstance(properties, Set):
            raise TypeError(f"properties is {properties!r}; expected a frozenset of names")
        for name in sorted(str(name) for name in properties - cls.known_properties):
            raise TypeError(
                f"properties has the unknown name '{name}'{nearest(name, cls.known_properties)}"
            )

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Return why the entry cannot be used in ``setting``, or None if it can. An empty text is refused.

        Called for every variant and role during planning. A plan excludes an incompatible variant
        and prints the reason, so the reason should name the setting to change.
        """
        return None

    @classmethod
    def violations_by_option(cls, options: BaseOptions) -> Mapping[str, str]:
        """Return the invariants that these options violate by design, each with the option.

        For example ``{"precision": "arithmetic: single"}``. Their verdicts are then "known
        violation" and do not fail a check.
        """
        return {}

    @classmethod
    def depends_on(cls, options: BaseOptions) -> tuple[str, ...]:
        """Return the names of the entries of the same family that this entry calls.

        A run is stale if the source of this entry, or of one of these, has changed.
        """
        return ()

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring of the class, else of its module."""
        text = cls.__dict__.get("__doc__") or inspect.getdoc(inspect.getmodule(cls)) or ""
        lines = text.strip().splitlines()
        return lines[0] if lines else ""
