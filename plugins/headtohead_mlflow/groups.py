"""The tags by which views group the runs of a study: the variant and the values of the axes, each with a colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headtohead.figures.colours import PALETTE
from headtohead.storage.experiment import ExperimentRecord, VariantRecord
from headtohead.storage.palette import BASELINE, Palette
from headtohead_mlflow.colours import coloured, distinct
from headtohead_mlflow.run_page import text

VARIANT_TAG = "h2h.variant"
COLOUR_TAG = "mlflow.runColor"


def axis_tag(axis: str) -> str:
    """Return the tag that has the value of an axis."""
    return f"h2h.axis.{axis}"


@dataclass(frozen=True)
class Groups:
    """The values of the tags by which views group runs; invisible characters at their ends select the colours.

    Attributes:
        variants: The title of each variant, by slug; the baseline's is marked, since charts show no other name. No two
            have the same colour, up to the 29 of MLflow.
        values: The values of each axis, by axis and by the text that is shown. No two of an axis have the same colour.
        colours: The colour of each variant by slug: the closest to its colour in the report that MLflow has and no
            earlier variant has.
    """

    variants: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]
    colours: Mapping[str, str]

    @classmethod
    def of(cls, record: ExperimentRecord) -> Groups:
        """Return the groups of a study."""
        palette = Palette(record)
        wanted = []
        for slug in record.by_slug:
            wanted.append(palette.colour(slug) if palette.is_coloured else None)
        colours = dict(zip(record.by_slug, distinct(wanted), strict=True))
        variants = {}
        for slug, variant in record.by_slug.items():
            mark = f" ({BASELINE})" if slug == record.baseline else ""
            variants[slug] = coloured(VARIANT_TAG, variant.title + mark, colours[slug])
        values = {axis: _coloured_values(record, axis) for axis in record.axes}
        return cls(variants, values, colours)

    def tags(self, variant: VariantRecord) -> dict[str, str]:
        """Return the tags of the runs of a variant."""
        tags = {VARIANT_TAG: self.variants[variant.slug], COLOUR_TAG: self.colours[variant.slug]}
        for axis, names in self.values.items():
            tags[axis_tag(axis)] = names[text(variant.axes.get(axis))]
        return tags


def _coloured_values(record: ExperimentRecord, axis: str) -> dict[str, str]:
    """Return the values of an axis with their suffixes, the baseline's first, in the order of the report's colours."""
    variants = [record.by_slug[record.baseline], *record.variants]
    values = [*dict.fromkeys(text(variant.axes.get(axis)) for variant in variants)]
    wanted = [PALETTE[index % len(PALETTE)] for index in range(len(values))]
    names = {}
    for value, colour in zip(values, distinct(wanted), strict=True):
        names[value] = coloured(axis_tag(axis), value, colour)
    return names
