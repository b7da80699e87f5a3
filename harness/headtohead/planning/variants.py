"""Variants: what an experiment compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headtohead.config.labels import Scalar
from headtohead.planning.axes import Match
from headtohead.schema.run_config import RunConfig


@dataclass(frozen=True)
class Variant:
    """A complete configuration without its seed, with its slug, title and axis values."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    config: RunConfig
    match: Match = "none"
