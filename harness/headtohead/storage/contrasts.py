"""The contrasts of an experiment, as planned, stored and reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from headtohead.schema.experiment_file import Expectation
from headtohead.storage.record import AxisValue, Count, Record
from headtohead.storage.results import HeadMetricName, MetricName

Pairs = tuple[tuple[str, str], ...]
"""Pairs of slugs; a difference is left minus right."""


class _TwoVariants(Record):
    """A contrast of two variants."""

    name: str
    variant: str
    against: str

    @property
    def pairs(self) -> Pairs:
        """The pair of variants."""
        return ((self.variant, self.against),)


class VariantContrast(_TwoVariants):
    """A contrast of a variant with the baseline."""

    kind: Literal["variant"] = "variant"


class FactorContrast(Record):
    """A contrast of two values of an axis, averaged over the other axes.

    ``given`` holds the axes that the design block fixes at a value other than the baseline's. ``pairs_missing`` is
    the number of pairs that are omitted because a side is excluded.
    """

    kind: Literal["factor"] = "factor"
    name: str
    axis: str
    value: AxisValue
    against: AxisValue
    given: Mapping[str, AxisValue]
    pairs: Pairs
    pairs_missing: Count


class InteractionContrast(Record):
    """Whether the effect of an axis depends on another axis: a difference of differences.

    The effect of ``value`` against ``against`` where ``other_axis`` is ``other_value``, minus that where it is
    ``other_against``, averaged over the remaining axes. ``pairs`` holds two pairs per setting of the remaining axes:
    the first difference, and the second with its sides swapped, so that the contrast is their sum.
    """

    kind: Literal["interaction"] = "interaction"
    name: str
    axis: str
    value: AxisValue
    against: AxisValue
    other_axis: str
    other_value: AxisValue
    other_against: AxisValue
    pairs: Pairs


class DeclaredContrast(_TwoVariants):
    """A contrast of two variants that the experiment file declares.

    The fields with ``against_`` are those of the side ``against``; None if they equal those of the side ``variant``.
    """

    kind: Literal["declared"] = "declared"
    metric: (MetricName | HeadMetricName) | None = None
    against_metric: (MetricName | HeadMetricName) | None = None
    lengths: tuple[Count, Count] | None = None
    against_lengths: tuple[Count, Count] | None = None
    expect: Expectation | None = None

    @property
    def same_score(self) -> bool:
        """Whether both sides use the same metric and lengths."""
        return self.against_metric is None and self.against_lengths is None


class ChangeContrast(_TwoVariants):
    """A single change between two configurations, added to the first or taken from the second.

    ``variant`` has the change and ``against`` does not; they are equal in everything else.
    """

    kind: Literal["added", "taken"]
    change: str


ContrastRecord = Annotated[
    VariantContrast | FactorContrast | InteractionContrast | DeclaredContrast | ChangeContrast,
    Field(discriminator="kind"),
]
"""A difference that is tested."""
