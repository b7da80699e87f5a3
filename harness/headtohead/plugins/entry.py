"""What every registered entry has in common: options, a summary and a say in what is undefined."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from headtohead.schema.run_config import RunConfig


class Options(BaseModel):
    """The settings of one entry; subclass it with one annotated, defaulted field per option."""

    model_config = ConfigDict(extra="forbid", frozen=True)


BaseOptions = Options
"""The same under a name that the attribute ``Options`` of an entry does not hide."""


@dataclass(frozen=True)
class Setting:
    """The place in a configuration where an entry is asked whether it is defined.

    ``longest`` counts tokens, boundary tokens included, per side (``"source"``, ``"target"``); a
    side is absent while the data has not been read.
    """

    config: RunConfig
    role: str
    longest: Mapping[str, int]


@dataclass(frozen=True)
class Cost:
    """Formulas of what an entry costs, as Python expressions such as ``"4*d**2 + 2*h**2"``.

    Variables: ``d`` (model width), ``h`` (heads), ``L`` (layers of the role), ``n`` (tokens), and the
    entry's integer options by name. An attention states the cost of one attention. An encoding states
    its parameters for all layers of a role, and the FLOPs it adds to one attention.

    Args:
        parameters: Number of weights without biases.
        biases: Number of biases added by ``model.bias``.
        flops: FLOPs of matrix products over n tokens, two for each multiply-add.
    """

    parameters: str = "0"
    biases: str = "0"
    flops: str = "0"


class Entry:
    """Base of everything a plugin registers. An entry is a class; the registry holds the class."""

    Options: ClassVar[type[BaseOptions]] = Options
    """Options of the entry, validated before anything runs."""

    entry_name: ClassVar[str] = "unnamed"
    """The name that experiments use, for messages; given when the entry is registered."""

    role_defaults: ClassVar[Mapping[str, str]] = {}
    """Which entry a bare name means in the roles where it does not mean itself."""

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Return the reason why this entry has no meaning in ``setting``, or None."""
        return None

    @classmethod
    def violations_by_option(cls, options: BaseOptions) -> Mapping[str, str]:
        """Return the invariants that options are known to break, each with the option's name.

        For choices that are kept because somebody made them; what they break is no fault.
        """
        return {}

    @classmethod
    def depends_on(cls, options: BaseOptions) -> tuple[str, ...]:
        """Return the names of the entries of the same family that this one calls.

        A run counts as stale when one of them has changed, as when the entry itself has.
        """
        return ()

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the entry's module or class docstring."""
        text = cls.__dict__.get("__doc__") or inspect.getdoc(inspect.getmodule(cls)) or ""
        return text.strip().splitlines()[0] if text.strip() else ""
