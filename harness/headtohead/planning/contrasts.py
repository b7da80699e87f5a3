"""Contrasts: of product designs axis values against the baseline's and interactions, and those that a file declares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headtohead.config.clauses import as_noun, within
from headtohead.config.labels import Scalar, axis_value
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation, shown
from headtohead.data.metrics import find_metric
from headtohead.planning.metrics import check_metric, reported_metrics
from headtohead.planning.naming import Combination, clause_of
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS, Variant, comparison_group
from headtohead.schema.experiment_file import ContrastDeclaration
from headtohead.schema.metric import UNPADDED
from headtohead.storage.contrasts import AxisEffect, ContrastRecord, WeightedSide
from headtohead.storage.experiment import ExcludedRecord
from headtohead.storage.metrics import readable

FindCondition = Callable[[Mapping[str, Any], SourceLocation], Callable[[Variant], bool]]

Labels = Mapping[str, Mapping[str, Scalar]]
"""The axis values of every combination of the design, by slug."""

Axis = tuple[str, ...]
"""The paths of an axis: one, or those of a ``zip``, which change together."""

Cell = tuple[int, ...]
"""The index of the value of each axis of a block."""


TOGETHER = "{first} together with {second}"
"""The name of an interaction."""

Weights = Mapping[str | None, float]
"""The weights of a setting by slug; None is a combination that the design does not have."""


@dataclass(frozen=True)
class Factorial:
    """A product block.

    Methods take the position of an axis in ``axes``. They raise a `KeyError` if ``labels`` lacks a slug of ``cells``,
    or the baseline, or one of its axis values.

    Attributes:
        axes: The axes of the block.
        cells: The slug of each combination of the product by the indices of its values, including excluded ones; not
            empty.
        labels: The axis values of every combination of the design by slug, including excluded ones.
        baseline: The slug of the baseline, which need not be in the block.
        phrases: The phrases of the axis values of every combination of the design, by slug.
    """

    axes: tuple[Axis, ...]
    cells: Mapping[Cell, str]
    labels: Labels
    baseline: str
    phrases: Mapping[str, Mapping[str, str]]

    def value(self, position: int, slug: str) -> Scalar:
        """Return the value of an axis in a combination."""
        return axis_value(self.axes[position], self.labels[slug])

    def is_compared(self, position: int) -> bool:
        """Return whether scores are compared between the values of an axis, unlike those of ``data`` and ``size``."""
        return not {DATA_AXIS, SIZE_AXIS}.intersection(self.axes[position])

    def effect(self, position: int, value: Scalar) -> AxisEffect:
        """Return the effect of a value of an axis against the baseline's value."""
        axis = " and ".join(self.axes[position])
        return AxisEffect(axis=axis, value=value, against=self.value(position, self.baseline))

    def combination(self, slug: str) -> Combination:
        """Return a combination with its phrases."""
        return Combination(self.labels[slug], self.phrases[slug])

    def setting(self, position: int) -> str:
        """Return the phrases of `fixed_axes`; empty without any."""
        any_slug = next(iter(self.cells.values()))
        phrases = []
        for fixed in self._fixed_positions(position):
            phrases += [self.phrases[any_slug][path] for path in self.axes[fixed]]
        return ", ".join(phrases)

    def fixed_axes(self, position: int) -> dict[str, Scalar]:
        """Return the value of each other axis that is constant in the block at a value other than the baseline's.

        The keys are the names of the axes; the paths of a ``zip`` are joined by "and".
        """
        any_slug = next(iter(self.cells.values()))
        fixed_positions = self._fixed_positions(position)
        return {
            " and ".join(self.axes[fixed]): self.value(fixed, any_slug) for fixed in fixed_positions
        }

    def _fixed_positions(self, position: int) -> list[int]:
        """Return the positions of the axes of `fixed_axes`."""
        any_slug = next(iter(self.cells.values()))
        positions = []
        for other in range(len(self.axes)):
            indices = {cell[other] for cell in self.cells}
            differs = self.value(other, any_slug) != self.value(other, self.baseline)
            if other != position and len(indices) == 1 and differs:
                positions.append(other)
        return positions

    def factor_weights(self, position: int) -> dict[Scalar, list[Weights]]:
        """Return the settings of the effect of each value of an axis, one for each combination of the other axes.

        A setting has two weights: 1 of a combination with the value, and −1 of the combination that differs only in
        having the baseline's value. If the block lacks the baseline's value, the second combination is one of another
        block. Its slug is None if the design lacks it. A setting whose two combinations share a slug, because they have
        the same effect, is left out, and equal settings occur once. The baseline's value has an empty list.
        """
        weights_of: dict[Scalar, list[Weights]] = {}
        for cell, slug in self.cells.items():
            against = self._at_baseline(cell, [position])
            weights: Weights = {slug: 1, against: -1}
            settings = weights_of.setdefault(self.value(position, slug), [])
            if against != slug and weights not in settings:
                settings.append(weights)
        return weights_of

    def interaction_weights(
        self, first: int, second: int
    ) -> dict[tuple[Scalar, Scalar], list[Weights]]:
        """Return the settings of each interaction, by a value of the first axis and a value of the second axis.

        Neither value is the baseline's. A setting has the weights of four combinations: both values, and the baseline's
        value instead of the second, of the first, and of both. There is a setting for each combination of the remaining
        axes, also if one of its four combinations is excluded, but not if two of them share a slug because they have
        the same effect. The result is empty if the block lacks the baseline's value of one of the two axes.

        Args:
            first: Position of an axis.
            second: Position of another axis.
        """
        weights_of: dict[tuple[Scalar, Scalar], list[Weights]] = {}
        if self._baseline_indices[first] is None or self._baseline_indices[second] is None:
            return weights_of
        for cell, both in self.cells.items():
            only_first = self._at_baseline(cell, [second])
            only_second = self._at_baseline(cell, [first])
            neither = self._at_baseline(cell, [first, second])
            # (both − only_second) is the effect of the first value with the second value.
            weights: Weights = {both: 1, only_second: -1, only_first: -1, neither: 1}
            if len(weights) == 4:  # four variants, so neither value is the baseline's
                values = self.value(first, both), self.value(second, both)
                weights_of.setdefault(values, []).append(weights)
        return weights_of

    def _at_baseline(self, cell: Cell, positions: Sequence[int]) -> str | None:
        """Return the slug of the combination with the baseline's values of some axes and a cell's values of the others.

        ``positions`` are those of the axes in this block. The combination may be of another block, or excluded; None
        if the design has no such combination.
        """
        cell_at_baseline = self._cell_at_baseline(cell, positions)
        if cell_at_baseline is not None:
            return self.cells[cell_at_baseline]
        values = dict(self.labels[self.cells[cell]])
        for position in positions:
            for path in self.axes[position]:
                values[path] = self.labels[self.baseline][path]
        # The labels of all combinations have the axes in the same order.
        return self._slug_of_labels.get(tuple(values.items()))

    def _cell_at_baseline(self, cell: Cell, positions: Sequence[int]) -> Cell | None:
        """Return a cell with the baseline's values of some axes; None if the block lacks one of these values."""
        indices = list(cell)
        for position in positions:
            index = self._baseline_indices[position]
            if index is None:
                return None
            indices[position] = index
        return tuple(indices)

    @cached_property
    def _baseline_indices(self) -> list[int | None]:
        """For each axis of the block, the index of the baseline's value; None if the block does not have it."""
        indices: list[int | None] = []
        for position, axis in enumerate(self.axes):
            values = {path: self.labels[self.baseline][path] for path in axis}
            index = None
            for cell, slug in self.cells.items():
                if values.items() <= self.labels[slug].items():
                    index = cell[position]
                    break
            indices.append(index)
        return indices

    @cached_property
    def _slug_of_labels(self) -> dict[tuple[tuple[str, Scalar], ...], str]:
        return {tuple(values.items()): slug for slug, values in self.labels.items()}


def factor_contrasts(
    factorials: Iterable[Factorial], trainable: Container[str]
) -> list[ContrastRecord]:
    """Return the contrasts of a value of an axis with the baseline's value, averaged over the other axes of a block.

    The axes ``data`` and ``size`` have none, because scores on different data or of different sizes are not compared.
    A setting with a combination that is not trainable, or not in the design, is left out and counted in ``missing``;
    without any complete setting there is no contrast. A value with a single setting, complete or not, has none either:
    that is a contrast of two variants. Of contrasts of the same difference, the first is returned.

    Args:
        factorials: The product blocks.
        trainable: The slugs of the variants, without excluded combinations.
    """
    contrasts: list[ContrastRecord] = []
    for factorial in factorials:
        for position in range(len(factorial.axes)):
            if not factorial.is_compared(position):
                continue
            for value, all_settings in factorial.factor_weights(position).items():
                settings = _complete(all_settings, trainable)
                if not settings or len(all_settings) == 1:
                    continue
                variant, against = (factorial.combination(side.variant) for side in settings[0])
                contrasts.append(
                    ContrastRecord(
                        name=within(clause_of(variant, against), factorial.setting(position)),
                        family="factor",
                        settings=settings,
                        effects=(factorial.effect(position, value),),
                        given=factorial.fixed_axes(position),
                        missing=len(all_settings) - len(settings),
                    )
                )
    return _without_repeats(contrasts)


def interaction_contrasts(
    factorials: Iterable[Factorial], trainable: Container[str]
) -> list[ContrastRecord]:
    """Return contrasts that test whether the effect of an axis depends on another axis, for every two axes of a block.

    An interaction is the effect of a value of the first axis, with a value of the second axis minus with the baseline's
    value of it; all effects are against the baseline's values. It is averaged over the combinations of the remaining
    axes whose four variants are all trainable; without any there is no contrast. Of contrasts of the same difference,
    the first is returned. Takes the arguments of `factor_contrasts`.
    """
    contrasts: list[ContrastRecord] = []
    for factorial in factorials:
        # The axes `data` and `size` are last: differences within the same data are compared between data.
        positions = sorted(
            range(len(factorial.axes)), key=lambda position: not factorial.is_compared(position)
        )
        for first, second in itertools.combinations(positions, 2):
            settings_by_values = factorial.interaction_weights(first, second)
            for (value, other_value), all_settings in settings_by_values.items():
                settings = _complete(all_settings, trainable)
                if not settings:
                    continue
                both, only_second, only_first, _ = (
                    factorial.combination(side.variant) for side in settings[0]
                )
                name = TOGETHER.format(
                    first=as_noun(clause_of(both, only_second)),
                    second=as_noun(clause_of(both, only_first)),
                )
                effects = factorial.effect(first, value), factorial.effect(second, other_value)
                contrasts.append(
                    ContrastRecord(
                        name=within(name, factorial.setting(first)),
                        family="interaction",
                        settings=settings,
                        effects=effects,
                        given=factorial.fixed_axes(first),
                    )
                )
    return _without_repeats(contrasts)


def _complete(
    settings: Iterable[Weights], trainable: Container[str]
) -> tuple[tuple[WeightedSide, ...], ...]:
    """Return the settings in which all variants are trainable, as weighted sides.

    A setting with the slug None, a combination that the design lacks, is left out.
    """
    complete = []
    for weights in settings:
        sides = []
        for slug, weight in weights.items():
            if slug is not None and slug in trainable:
                sides.append(WeightedSide(variant=slug, weight=weight))
        if len(sides) == len(weights):
            complete.append(tuple(sides))
    return tuple(complete)


def _without_repeats(contrasts: Iterable[ContrastRecord]) -> list[ContrastRecord]:
    """Return the first contrast of each difference."""
    first: dict[object, ContrastRecord] = {}
    for contrast in contrasts:
        # The metric is the same for all contrasts of a design.
        first.setdefault(contrast.contrast("").key, contrast)
    return list(first.values())


def declared_contrasts(
    loaded: LoadedExperiment,
    variants: Sequence[Variant],
    excluded: Sequence[ExcludedRecord],
    baseline: str,
    condition: FindCondition,
) -> tuple[ContrastRecord, ...]:
    """Return the contrasts that the file declares, between variants that are not excluded; none if it declares none.

    Args:
        loaded: The experiment file.
        variants: The variants that run, which include the baseline.
        excluded: The excluded combinations, for the message about a side that matches no variant.
        baseline: Slug of the baseline.
        condition: Converts axis values to a predicate, as in ``exclude``.

    Raises:
        HeadToHeadError: With the location in the file: for a metric that the baseline does not have; for an invalid
            axis or value; for a side that matches no variant or several; for the same score on both sides; for sides
            with different data or sizes; for a repeated contrast; for ``direction: equal`` without ``by``; for lengths
            that are not whole buckets, or of a metric without scores by length. Also if the primary metric is invalid.
    """
    base = next(variant for variant in variants if variant.slug == baseline)
    primary = reported_metrics(loaded, base.config).primary
    number_of: dict[object, int] = {}
    records: list[ContrastRecord] = []
    for number, declared in enumerate(loaded.file.contrasts):
        location = loaded.location("contrasts", number)
        for field in ("metric", "against_metric"):
            metric = getattr(declared, field)
            check_metric(
                metric, base.config, location.child(field), of_heads_too=True, compared=True
            )
        selected = []
        for field in ("variant", "against"):
            when = getattr(declared, field)
            side_location = location.child(field)
            selected.append(_select(when, variants, excluded, base, condition, side_location))
        variant, against = selected
        record = _declared_record(declared, variant, against)
        contrast = record.contrast(primary)
        if not contrast.weights:
            raise location.error(
                "variant and against are the same variant; name two different variants"
            )
        _refuse_different_groups(variant, against, location)
        if contrast.key in number_of:
            raise location.error(
                f"the same two variants as contrasts[{number_of[contrast.key]}]; remove one of them"
            )
        if declared.expect and declared.expect.direction == "equal" and not declared.expect.by:
            raise location.child("expect").error(
                "direction: equal requires by, the largest difference that agrees"
            )
        _check_lengths(declared, primary, base.config.evaluate.buckets, location)
        number_of[contrast.key] = number
        records.append(record)
    return tuple(records)


def _declared_record(
    declared: ContrastDeclaration, variant: Variant, against: Variant
) -> ContrastRecord:
    """Return the record of a declared contrast, ``variant`` minus ``against``; nothing is checked.

    Without ``against_metric`` or ``against_lengths``, the second side has the metric or lengths of the first. The
    default name is that of `_default_name`.
    """
    left = WeightedSide(
        variant=variant.slug, weight=1, metric=declared.metric, lengths=declared.lengths
    )
    right = WeightedSide(
        variant=against.slug,
        weight=-1,
        metric=declared.against_metric or declared.metric,
        lengths=declared.against_lengths or declared.lengths,
    )
    return ContrastRecord(
        name=declared.name or _default_name(variant, left, against, right),
        is_named=declared.name is not None,
        family="declared",
        settings=((left, right),),
        expect=declared.expect,
    )


AGAINST = "{left} against {right}"
LENGTHS = "lengths {first} to {last}"


def _default_name(
    variant: Variant, left: WeightedSide, against: Variant, right: WeightedSide
) -> str:
    """Return the name of a declared contrast without a name in the file.

    For different variants with the same metric and lengths, it is the clause for the change, with the lengths if they
    are limited. Otherwise it has the title of each side, with its metric and its lengths where the file gives them.
    """
    is_same_score = left.metric == right.metric and left.lengths == right.lengths
    if is_same_score and variant.slug != against.slug:
        clause = clause_of(variant.combination, against.combination)
        return within(clause, _lengths(left))
    titles = []
    for side, title in ((left, variant.title), (right, against.title)):
        details = [side.metric and readable(side.metric), _lengths(side)]
        shown = ", ".join(detail for detail in details if detail)
        titles.append(f"{title} ({shown})" if shown else title)
    return AGAINST.format(left=titles[0], right=titles[1])


def _lengths(side: WeightedSide) -> str:
    """Return the source lengths of a side; empty if all count."""
    if side.lengths is None:
        return ""
    return LENGTHS.format(first=side.lengths[0], last=side.lengths[1])


def _refuse_different_groups(variant: Variant, against: Variant, location: SourceLocation) -> None:
    """Raise a `HeadToHeadError` for variants with different data or sizes, whose scores are not compared."""
    if comparison_group(variant.axes) == comparison_group(against.axes):
        return
    if variant.axes.get(DATA_AXIS) != against.axes.get(DATA_AXIS):
        raise location.error(
            "scores on different data are not compared; give both sides the same data"
        )
    raise location.error(
        "scores of different sizes are not compared; give both sides the same size"
    )


def _select(
    when: Mapping[str, Any] | None,
    variants: Sequence[Variant],
    excluded: Sequence[ExcludedRecord],
    baseline: Variant,
    condition: FindCondition,
    location: SourceLocation,
) -> Variant:
    """Return the variant of one side of a contrast: the only one with these axis values.

    If several variants have them, it is the one with the baseline's values on all other axes.

    Args:
        when: Axis values; None or empty is the baseline.
        variants: The variants to select from.
        excluded: The excluded combinations; an error lists the first three.
        baseline: The baseline.
        condition: Converts axis values to a predicate.
        location: Location of the side in the file.

    Raises:
        HeadToHeadError: If an axis or a value is invalid, or if no variant or several are left.
    """
    if not when:
        return baseline
    is_selected = condition(when, location)
    matching = [variant for variant in variants if is_selected(variant)]
    if len(matching) > 1:
        other_axes = {axis: value for axis, value in baseline.axes.items() if axis not in when}
        at_baseline = [
            variant for variant in matching if other_axes.items() <= variant.axes.items()
        ]
        matching = at_baseline or matching
    if len(matching) == 1:
        return matching[0]
    problem = f"{len(matching)} variants have" if matching else "no variant of the design has"
    written = ", ".join(f"{axis}: {shown(value)}" for axis, value in when.items())
    expected = "; ".join(variant.title for variant in (matching or variants)[:6])
    for variant in excluded[:3]:
        expected += f"; {variant.title} is excluded: {variant.reason}"
    raise location.error(f"{problem} {written}; expected one of: {expected}")


def _check_lengths(
    declared: ContrastDeclaration, primary: str, buckets: Sequence[int], location: SourceLocation
) -> None:
    """Check the lengths of both sides of a declared contrast against the metrics of these sides.

    Without ``against_lengths``, ``lengths`` apply to both sides; a contrast without lengths is valid.

    Args:
        declared: The contrast.
        primary: The metric of sides that name none.
        buckets: Last length of each bucket, ``evaluate.buckets``.
        location: Location of the contrast in the file.

    Raises:
        HeadToHeadError: If the lengths are not whole buckets, or a side's metric has no scores by length.
    """
    metric = declared.metric or primary
    against_field = "against_lengths" if declared.against_lengths else "lengths"
    for field, metric_of_side in (
        ("lengths", metric),
        (against_field, declared.against_metric or metric),
    ):
        lengths = getattr(declared, field)
        if lengths is not None:
            _check_length_range(lengths, metric_of_side, buckets, location.child(field))


def _check_length_range(
    lengths: tuple[int, int], metric: str, buckets: Sequence[int], location: SourceLocation
) -> None:
    """Raise unless the scores of one side of a contrast exist for this range of source lengths.

    Only scores of the test split that are computed from counts of its sentences exist by source length, and only for
    whole buckets.

    Args:
        lengths: First and last length, both included. They may span several buckets.
        metric: Name of the side's metric, with its split.
        buckets: Last length of each bucket, ``evaluate.buckets``, ascending. The bucket of longer sources has
            no last length, so no range includes it.
        location: Location of the lengths in the file.

    Raises:
        HeadToHeadError: If the metric has no score by length, the lengths do not start and end with a bucket, the last
            length is below the first, or two datasets declare different metrics of this name.
    """
    entry = find_metric(metric)
    is_by_length = entry is not None and entry.pool is not None
    if not is_by_length or not metric.startswith("test/"):
        raise location.error(
            f"{metric} has no score by source length; use a score of test sentences, such as test/loss"
        )
    if metric.endswith(UNPADDED):
        raise location.error(
            f"{metric} has no score by source length; use {metric.removesuffix(UNPADDED)}"
        )
    starts = [1, *(bound + 1 for bound in buckets[:-1])]
    low, high = lengths
    if low > high or low not in starts or high not in buckets:
        start_list = ", ".join(map(str, starts))
        end_list = ", ".join(map(str, buckets))
        raise location.error(
            f"lengths must be whole buckets of evaluate.buckets: start at {start_list} and end at {end_list}; "
            f"got {low} to {high}"
        )
