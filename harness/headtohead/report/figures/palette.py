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
    """Colours and marks of an experiment's variants, the same in every picture.

    The axis with the most values (the first of them) that has no more than there are colours gives
    the colour, the others together give the mark; where a design has no such grid, every variant
    has a colour of its own.
    """

    frames: Frames

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The values of each axis that occur, the baseline's first, then in order of the design."""
        first = self.frames.variants[self.frames.baseline]["axes"]
        found = {axis: [label(first.get(axis))] for axis in self.frames.axes}
        for variant in self.frames.variants.values():
            for axis, column in found.items():
                value = label(variant["axes"].get(axis))
                if value not in column:
                    column.append(value)
        return found

    @cached_property
    def colour_axis(self) -> str | None:
        """The axis that colours stand for, or None where every variant has its own."""
        if not self.frames.axes or not self.is_grid:
            return None
        sizes = {axis: len(self.values[axis]) for axis in self.frames.axes}
        told_apart = {axis for axis, size in sizes.items() if 1 < size <= len(PALETTE)}
        return max((a for a in sizes if a in told_apart or not told_apart), key=sizes.__getitem__)

    @cached_property
    def is_grid(self) -> bool:
        """Whether values of different axes are combined with one another."""
        declared = self.frames.experiment.get("contrasts", [])
        return any(contrast["kind"] == "factor" for contrast in declared)

    def colour(self, slug: str) -> str:
        """Return the variant's colour."""
        if self.colour_axis is None:
            return PALETTE[list(self.frames.variants).index(slug) % len(PALETTE)]
        return self.value_colour(label(self.frames.variants[slug]["axes"].get(self.colour_axis)))

    def value_colour(self, value: str) -> str:
        """Return the colour of a value of the colour axis."""
        assert self.colour_axis is not None
        return PALETTE[self.values[self.colour_axis].index(value) % len(PALETTE)]

    def legend(self, slugs: Sequence[str]) -> dict[str, str]:
        """Return what the colours of these variants stand for, in order of the design."""
        named = {self.line_name(slug): self.colour(slug) for slug in slugs}
        if self.colour_axis is None:
            return named
        return {value: named[value] for value in self.values[self.colour_axis] if value in named}

    def panel(self, slug: str) -> str:
        """Return what is left of a variant's name when the colour has spoken."""
        if self.colour_axis is None:
            return ""
        words = self._words(slug)
        return " · ".join(words[axis] for axis in self.frames.axes if axis != self.colour_axis)

    def _words(self, slug: str) -> dict[str, str]:
        """Return a variant's values by axis, each as its title words it (``match parameters``)."""
        variant = self.frames.variants[slug]
        parts = str(variant["title"]).split(" · ")
        if len(parts) != len(self.frames.axes):
            parts = [label(variant["axes"].get(axis)) for axis in self.frames.axes]
        return dict(zip(self.frames.axes, parts, strict=True))

    @cached_property
    def panels(self) -> list[str]:
        """The panels in order of the design."""
        return list(dict.fromkeys(self.panel(slug) for slug in self.frames.variants))

    def marker(self, slug: str) -> str:
        """Return the variant's mark."""
        return MARKERS[self.panels.index(self.panel(slug)) % len(MARKERS)]

    def line_name(self, slug: str) -> str:
        """Return what a line is called where panels already carry the rest of the name."""
        variant = self.frames.variants[slug]
        if self.colour_axis is None:
            return str(variant["title"])
        return label(variant["axes"].get(self.colour_axis))
