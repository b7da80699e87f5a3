"""Colours of an experiment's variants."""

from __future__ import annotations

from collections.abc import Collection

from headtohead.figures.colours import MUTED, PALETTE
from headtohead.storage.experiment import ExperimentRecord

BASELINE = "baseline"
"""Name of the baseline in a legend."""


class Palette:
    """Colours of an experiment's variants, the same in every figure and table.

    The baseline is grey. In a grid, the colour encodes the axis with the most values among those with no more values
    than there are colours. Without a grid, every other variant has its own colour. If there are more values than
    colours, all variants except the baseline have the same colour.

    Attributes:
        values: The phrases of the values of each axis, the baseline's first, then in the order of the design.
        is_grid: Whether the design combines values of different axes, so that it has factor contrasts.
        colour_axis: The axis that the colour encodes, or None if every variant has its own colour.
        names: What the colours stand for: the values of that axis, or the titles of the variants but the baseline.
        is_coloured: Whether there are at most as many names as colours.
    """

    def __init__(self, record: ExperimentRecord) -> None:
        self.axes = record.axes
        self.axis_name = record.axis_name
        self.by_slug = record.by_slug
        self.baseline = record.baseline
        variants = [self.by_slug[record.baseline], *record.variants]
        self.values: dict[str, list[str]] = {}
        for axis in record.axes:
            phrases = dict.fromkeys(variant.phrase(axis) for variant in variants)
            self.values[axis] = list(phrases)
        self.is_grid = any(contrast.family == "factor" for contrast in record.contrasts)
        self.colour_axis = self._colour_axis()
        if self.colour_axis is None:
            others = [variant for variant in record.variants if variant.slug != record.baseline]
            self.names = [variant.title for variant in others]
        else:
            self.names = self.values[self.colour_axis]
        self.is_coloured = len(self.names) <= len(PALETTE)

    def _colour_axis(self) -> str | None:
        """Return the axis of a grid that the colour encodes, or None."""
        if not self.is_grid or not self.values:
            return None
        axes = []
        for axis, values in self.values.items():
            if 1 < len(values) <= len(PALETTE):
                axes.append(axis)
        return max(axes or self.values, key=lambda axis: len(self.values[axis]))

    def name(self, slug: str) -> str:
        """Return the name that a variant's colour stands for."""
        variant = self.by_slug[slug]
        if self.colour_axis is None:
            return variant.title
        return variant.phrase(self.colour_axis)

    def colour(self, slug: str) -> str:
        """Return the variant's colour."""
        return MUTED if slug == self.baseline else self.colour_of(self.name(slug))

    def colour_of(self, name: str) -> str:
        """Return the colour that stands for a name."""
        if not self.is_coloured:
            return PALETTE[0]
        return PALETTE[self.names.index(name)]

    def legend(self, slugs: Collection[str]) -> dict[str, str]:
        """Return the colours of these variants by name, in their order."""
        colours = {}
        for slug in slugs:
            name = BASELINE if slug == self.baseline else self.name(slug)
            colours[name] = self.colour(slug)
        return colours

    def panel(self, slug: str) -> str:
        """Return the phrases of a variant's axis values that the colour does not encode."""
        if self.colour_axis is None:
            return ""
        variant = self.by_slug[slug]
        return ", ".join(variant.phrase(axis) for axis in self.axes if axis != self.colour_axis)
