"""The base class of configuration sections, and markers for their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class NotHashed:
    """Excludes a field from the run hash, because results do not depend on it."""


@dataclass(frozen=True)
class HashIfChanged:
    """Excludes a field from the run hash while it has this value.

    A field that is added after a release gets this marker, so that hashes of older runs stay valid.
    """

    value: Any


@dataclass(frozen=True)
class FilePath(NotHashed):
    """Marks a dataset option that holds one or more paths.

    In an experiment file the path is relative to that file, on the command line to the working
    directory. Results depend on the content of the files, not on their paths.
    """


class Section(BaseModel):
    """A mapping in an experiment file; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
