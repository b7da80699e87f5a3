"""Colours and markers of an experiment's variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headtohead.figures.style import MARKERS, PALETTE
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import label


@dataclass(frozen=True)
class Palette:
    """Colours and markers of an experiment's variants, the same in every figure.

    In a grid, the colour encodes the axis with the most values among those with no more values than there
    are colours; the marker encodes the other axes. Without a grid, every variant has its own colour. If there are
    more values than colours, all variants have the same colour (`is_coloured`).
    """

    frames: Frames

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The labels of the values of each axis, the baseline's first, then in the order of the design."""
        variants = [self.frames.by_slug[self.frames.baseline], *self.frames.by_slug.values()]
        return {
            axis: list(dict.fromkeys(label(variant.axes.get(axis)) for variant in variants))
            for axis in self.frames.axes
        }

    @cached_property
    def colour_axis(self) -> str | None:
        """The axis that the colour encodes, or None if every variant has its own colour."""
        if not self.frames.axes or not self.is_grid:
            return None
        sizes = {axis: len(self.values[axis]) for axis in self.frames.axes}
        suitable = {axis for axis, size in sizes.items() if 1 < size <= len(PALETTE)}
        return max((axis for axis in sizes if axis in suitable or not suitable), key=sizes.__getitem__)

    @cached_property
    def is_grid(self) -> bool:
        """Whether the design combines values of different axes, so that it has factor contrasts."""
        return any(contrast.kind == "factor" for contrast in self.frames.record.contrasts)

    @cached_property
    def is_coloured(self) -> bool:
        """Whether there are at most as many values as colours."""
        values = self.frames.by_slug if self.colour_axis is None else self.values[self.colour_axis]
        return len(values) <= len(PALETTE)

    def colour(self, slug: str) -> str:
        """Return the variant's colour."""
        if not self.is_coloured:
            return PALETTE[0]
        if self.colour_axis is None:
            return PALETTE[list(self.frames.by_slug).index(slug)]
        return self.value_colour(label(self.frames.by_slug[slug].axes.get(self.colour_axis)))

    def value_colour(self, value: str) -> str:
        """Return the colour of a value of the colour axis."""
        assert self.colour_axis is not None
        return PALETTE[self.values[self.colour_axis].index(value)] if self.is_coloured else PALETTE[0]

    def legend(self, slugs: Sequence[str]) -> dict[str, str]:
        """Return the colour by legend label for these variants, in the order of the design."""
        named = {self.line_name(slug): self.colour(slug) for slug in slugs}
        if self.colour_axis is None:
            return named
        return {value: named[value] for value in self.values[self.colour_axis] if value in named}

    def panel(self, slug: str) -> str:
        """Return the part of a variant's title that the colour does not encode."""
        if self.colour_axis is None:
            return ""
        labels = self._labels(slug)
        return " · ".join(labels[axis] for axis in self.frames.axes if axis != self.colour_axis)

    def _labels(self, slug: str) -> dict[str, str]:
        """Return a variant's values by axis, as in its title (``match parameters``)."""
        variant = self.frames.by_slug[slug]
        parts = variant.title.split(" · ")
        if len(parts) != len(self.frames.axes):
            parts = [label(variant.axes.get(axis)) for axis in self.frames.axes]
        return dict(zip(self.frames.axes, parts, strict=True))

    @cached_property
    def panels(self) -> list[str]:
        """The names of the panels in the order of the design."""
        return list(dict.fromkeys(self.panel(slug) for slug in self.frames.by_slug))

    def marker(self, slug: str) -> str:
        """Return the variant's marker."""
        return MARKERS[self.panels.index(self.panel(slug)) % len(MARKERS)]

    def line_name(self, slug: str) -> str:
        """Return the legend label of a variant: the value that the colour encodes, or the title."""
        variant = self.frames.by_slug[slug]
        if self.colour_axis is None:
            return variant.title
        return label(variant.axes.get(self.colour_axis))
