"""Base classes of configuration sections and of the options of plugins, and markers for their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class NotHashed:
    """Excludes a field from the run hash, because results do not depend on it."""


@dataclass(frozen=True)
class VariesInStack:
    """Marks a field in which the runs of a stack may differ, and which ``tune`` may set."""


@dataclass(frozen=True)
class OmittedAtDefault:
    """Leaves a field of an `OmittingSection` out of records and run hashes while it has its default."""


@dataclass(frozen=True)
class FilePath(NotHashed):
    """Marks a dataset option that holds one or more paths.

    In an experiment file the path is relative to that file, on the command line to the working
    directory. Results depend on the content of the files, not on their paths.
    """


def is_path(field: FieldInfo) -> bool:
    """Return whether a field holds one or more paths."""
    return any(isinstance(marker, FilePath) for marker in field.metadata)


class ConfigSection(BaseModel):
    """A mapping in an experiment file; unknown fields are errors.

    The docstring of a field is its description in the reference and in the JSON Schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # a command validates few of the sections that it imports
    )


class OmittingSection(ConfigSection):
    """A section with fields that are `OmittedAtDefault`."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialize(self)
        for name, default in _omitted_defaults(type(self)).items():
            if getattr(self, name) == default:
                content.pop(name, None)
        return content


@cache
def _omitted_defaults(section: type[OmittingSection]) -> Mapping[str, Any]:
    """Return the default of each field that is `OmittedAtDefault`.

    Cached: a plan serialises sections many thousand times.
    """
    omitted = {}
    for name, info in section.model_fields.items():
        if OmittedAtDefault() in info.metadata:
            omitted[name] = info.default
    return omitted


class Options(ConfigSection):
    """Options of an entry: a pydantic model, subclassed with one annotated field per option.

    Every field needs a default and a description. Unknown options are errors.
    """

    # Finding docstrings in the source of every class takes a fifth of a second.
    model_config = ConfigDict(use_attribute_docstrings=False)


class RecordedOptions(Options):
    """Options as a record has them. `headtohead.config.entries.parsed_options` parses them by the entry's class."""

    model_config = ConfigDict(extra="allow")


ParsedOptions = Annotated[
    SerializeAsAny[Options],
    BeforeValidator(
        lambda value: RecordedOptions(**value) if isinstance(value, Mapping) else value
    ),
]
"""The options object of an entry. They are parsed once: when a configuration is built, or a record is loaded."""
