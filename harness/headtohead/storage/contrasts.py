"""The contrasts of an experiment, as planned and stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool

from headtohead.schema.experiment_file import Expectation
from headtohead.storage.record import AxisValue, Count, Number, Record
from headtohead.storage.results import HeadMetricName, MetricName
from headtohead_judge.contrast import Contrast, Setting, Side

Family = Literal["variant", "factor", "interaction", "declared", "added", "taken"]
"""Contrasts that are corrected together.

``variant``: variants with the baseline. ``factor``: two values of an axis, averaged over the other axes.
``interaction``: whether the effect of an axis depends on another. ``declared``: those of the experiment file.
``added``, ``taken``: single changes between two configurations, added to the first or taken from the second.
"""


FAMILY_NAMES = {
    "variant": "variant",
    "factor": "change",
    "interaction": "interaction",
    "declared": "declared contrast",
    "added": "added change",
    "taken": "taken change",
}
"""Names of a contrast by its family."""

FAMILIES_IN_WORDS = {
    "variant": "variants against the baseline",
    "factor": "changes",
    "interaction": "interactions",
    "declared": "contrasts that the file declares",
    "added": "added changes",
    "taken": "taken changes",
}
"""Names of all contrasts of a family."""


class WeightedSide(Record):
    """The weight of a variant's score in a setting; without ``metric``, the score is that of the analysed metric."""

    variant: str
    weight: Number
    metric: (MetricName | HeadMetricName) | None = None
    lengths: tuple[Count, Count] | None = None


BALANCED = 1e-9
"""Largest sum of weights that add up to 0, apart from rounding."""


def _balanced(sides: tuple[WeightedSide, ...]) -> tuple[WeightedSide, ...]:
    weights = [side.weight for side in sides]
    if not any(weights) or abs(sum(weights)) > BALANCED:
        raise ValueError("expected weights that are not all 0 and add up to 0")
    return sides


WeightedSides = Annotated[tuple[WeightedSide, ...], AfterValidator(_balanced)]
"""The sides of a setting; their weights add up to 0."""


class AxisEffect(Record):
    """An effect: the difference between two values of an axis. The axis of a change is the name of the change."""

    axis: str
    value: AxisValue
    against: AxisValue


class ContrastRecord(Record):
    """A weighted sum of scores that is tested, averaged over ``settings``.

    Attributes:
        name: The name in tables: a clause for the change, such as ``rotary instead of sinusoidal``.
        is_named: Whether the experiment file gives the name.
        family: The contrasts of a family are corrected together.
        settings: The weighted sides of each setting.
        effects: The axis that a factor contrast or a change compares, or the two axes of an interaction.
        given: The axes that the design block fixes at a value other than the baseline's.
        missing: The number of settings that a factor contrast omits because a side is excluded.
        expect: The expected result of a declared contrast.
    """

    name: str
    is_named: StrictBool = False
    family: Family
    settings: Annotated[tuple[WeightedSides, ...], Field(min_length=1)]
    effects: tuple[AxisEffect, ...] = ()
    given: Mapping[str, AxisValue] = {}
    missing: Count = 0
    expect: Expectation | None = None

    @classmethod
    def of_two(
        cls,
        name: str,
        family: Family,
        variant: str,
        against: str,
        effects: tuple[AxisEffect, ...] = (),
    ) -> ContrastRecord:
        """Return the contrast ``variant`` minus ``against``."""
        sides = WeightedSide(variant=variant, weight=1), WeightedSide(variant=against, weight=-1)
        return cls(name=name, family=family, settings=(sides,), effects=effects)

    @property
    def variants(self) -> list[str]:
        """The slugs of all variants, in the order of the settings."""
        slugs = dict.fromkeys(side.variant for setting in self.settings for side in setting)
        return list(slugs)

    @property
    def variant(self) -> str:
        """The variant with a positive weight in the first setting; of a contrast of two variants, the first."""
        return next(side.variant for side in self.settings[0] if side.weight > 0)

    @property
    def against(self) -> str:
        """The variant with a negative weight in the first setting; of a contrast of two variants, the second."""
        return next(side.variant for side in self.settings[0] if side.weight < 0)

    def contrast(self, metric: str) -> Contrast:
        """Return the contrast of the scores in ``metric``, unless a side has its own metric."""
        settings: list[Setting] = []
        for sides in self.settings:
            weights: dict[Side, float] = {}
            for side in sides:
                score = Side(side.variant, side.metric or metric, side.lengths)
                weights[score] = weights.get(score, 0.0) + side.weight
            settings.append(weights)
        return Contrast(self.name, self.family, tuple(settings))
