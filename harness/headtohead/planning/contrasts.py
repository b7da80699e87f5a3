"""Contrasts: of product designs axis values against the baseline's and interactions, and those that a file declares."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headtohead.config.labels import Scalar, axis_value, text
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation, shown
from headtohead.planning.metrics import check_metric, reported_metrics
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS, Variant, comparison_group
from headtohead.schema.experiment_file import ContrastDeclaration
from headtohead.schema.metric import UNPADDED
from headtohead.storage.contrasts import AxisEffect, ContrastRecord, WeightedSide
from headtohead.storage.experiment import ExcludedRecord
from headtohead.storage.metrics import find

FindCondition = Callable[[Mapping[str, Any], SourceLocation], Callable[[Variant], bool]]

Labels = Mapping[str, Mapping[str, Scalar]]
"""The axis values of every combination of the design, by slug."""

Axis = tuple[str, ...]
"""The paths of an axis: one, or those of a ``zip``, which change together."""

Cell = tuple[int, ...]
"""The index of the value of each axis of a block."""


@dataclass(frozen=True)
class Factorial:
    """A product block: its axes, and the slug of each combination by the indices of its values."""

    axes: tuple[Axis, ...]
    cells: Mapping[Cell, str]

    def is_compared(self, position: int) -> bool:
        """Return whether scores are compared between the values of an axis, unlike those of ``data`` and ``size``."""
        return not {DATA_AXIS, SIZE_AXIS}.intersection(self.axes[position])

    def index_of(self, position: int, labels: Labels, slug: str) -> int | None:
        """Return the index of a variant's value of an axis; None if the block does not have this value."""
        values = {path: labels[slug][path] for path in self.axes[position]}
        for cell, other in self.cells.items():
            if values.items() <= labels[other].items():
                return cell[position]
        return None

    def changed(self, cell: Cell, indices: Mapping[int, int]) -> str:
        """Return the slug of the combination that has other values at some positions."""
        changed = list(cell)
        for position, index in indices.items():
            changed[position] = index
        return self.cells[tuple(changed)]


def factor_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, trainable: Container[str]
) -> list[ContrastRecord]:
    """Return the contrasts of a value of an axis with the baseline's value, averaged over the other axes of a block.

    The axes ``data`` and ``size`` have none, because scores on different data or of different sizes are not compared.
    If a block lacks the baseline's value, each combination is compared with that of another block. The labels include
    those of excluded combinations. Of contrasts of the same difference, the first is returned.
    """
    contrasts: list[ContrastRecord] = []
    by_labels = {tuple(axes.items()): slug for slug, axes in labels.items()}
    for factorial in factorials:
        for position, axis in enumerate(factorial.axes):
            if not factorial.is_compared(position):
                continue
            baseline_values = {path: labels[baseline][path] for path in axis}
            baseline_index = factorial.index_of(position, labels, baseline)
            pairs_of: dict[Scalar, dict[tuple[str, str | None], None]] = {}
            for cell, slug in factorial.cells.items():
                against: str | None
                if baseline_index is None:
                    values = {**labels[slug], **baseline_values}
                    against = by_labels.get(tuple(values.items()))
                else:
                    against = factorial.changed(cell, {position: baseline_index})
                if against != slug:
                    value = axis_value(axis, labels[slug])
                    pairs_of.setdefault(value, {})[slug, against] = None
            given = _fixed_axes(factorial, axis, labels, baseline)
            for value, pairs in pairs_of.items():
                settings = []
                for slug, against in pairs:
                    if against is not None and slug in trainable and against in trainable:
                        settings.append(_weighted({slug: 1, against: -1}))
                # A single pair is a contrast of two variants, not an average.
                if not settings or len(pairs) == 1:
                    continue
                effect = _effect(axis, value, axis_value(axis, baseline_values))
                name = _named(axis, effect)
                if given:
                    condition = ", ".join(f"{path} {text(fixed)}" for path, fixed in given.items())
                    name = f"{name} ({condition})"
                contrasts.append(
                    ContrastRecord(
                        name=name,
                        family="factor",
                        settings=tuple(settings),
                        effects=(effect,),
                        given=given,
                        missing=len(pairs) - len(settings),
                    )
                )
    return _without_repeats(contrasts)


def interaction_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, trainable: Container[str]
) -> list[ContrastRecord]:
    """Return whether the effect of an axis depends on another axis, for every two axes of a product.

    An interaction is the effect of a value of the first axis, with a value of the second axis minus with the baseline's
    value of it; all effects are against the baseline's values. It is averaged over the remaining axes. A block without
    the baseline's value of an axis has no interactions of that axis. Takes the arguments of `factor_contrasts`.
    """
    contrasts: list[ContrastRecord] = []
    for factorial in factorials:
        # The axes `data` and `size` are last: differences within the same data are compared between data.
        positions = sorted(
            range(len(factorial.axes)), key=lambda position: not factorial.is_compared(position)
        )
        for first, second in itertools.combinations(positions, 2):
            first_index = factorial.index_of(first, labels, baseline)
            second_index = factorial.index_of(second, labels, baseline)
            if first_index is None or second_index is None:
                continue
            axis, other_axis = factorial.axes[first], factorial.axes[second]
            against = axis_value(axis, labels[baseline])
            other_against = axis_value(other_axis, labels[baseline])
            settings_of: dict[tuple[Scalar, Scalar], list[tuple[WeightedSide, ...]]] = {}
            for cell, both in factorial.cells.items():
                value = axis_value(axis, labels[both])
                other_value = axis_value(other_axis, labels[both])
                if value == against or other_value == other_against:
                    continue
                only_first = factorial.changed(cell, {second: second_index})
                only_second = factorial.changed(cell, {first: first_index})
                neither = factorial.changed(cell, {first: first_index, second: second_index})
                # (both − only_second) is the effect of the first value with the second value.
                weights = {both: 1, only_second: -1, only_first: -1, neither: 1}
                is_complete = all(slug in trainable for slug in weights)
                if is_complete and len(weights) == 4:  # no two of the combinations are equal
                    setting = _weighted(weights)
                    settings_of.setdefault((value, other_value), []).append(setting)
            given = _fixed_axes(factorial, axis, labels, baseline)
            conditions = "".join(f", {name} {text(fixed)}" for name, fixed in given.items())
            for (value, other_value), settings in settings_of.items():
                effect = _effect(axis, value, against)
                other_effect = _effect(other_axis, other_value, other_against)
                contrasts.append(
                    ContrastRecord(
                        name=f"{_named(axis, effect)}, by {_named(other_axis, other_effect)}{conditions}",
                        family="interaction",
                        settings=tuple(settings),
                        effects=(effect, other_effect),
                    )
                )
    return _without_repeats(contrasts)


def _weighted(weights: Mapping[str, float]) -> tuple[WeightedSide, ...]:
    """Return a setting of a record from the weight of each variant."""
    return tuple(
        WeightedSide(variant=variant, weight=weight) for variant, weight in weights.items()
    )


def _effect(axis: Axis, value: Scalar, against: Scalar) -> AxisEffect:
    return AxisEffect(axis=" and ".join(axis), value=value, against=against)


def _named(axis: Axis, effect: AxisEffect) -> str:
    """Return the axis and the values of an effect; the values of a ``zip`` contain the names of their fields."""
    values = f"{text(effect.value)} − {text(effect.against)}"
    return f"{axis[0]}: {values}" if len(axis) == 1 else values


def _without_repeats(contrasts: Iterable[ContrastRecord]) -> list[ContrastRecord]:
    """Return the first contrast of each difference."""
    first: dict[object, ContrastRecord] = {}
    for contrast in contrasts:
        # The metric is the same for all contrasts of a design.
        first.setdefault(contrast.contrast("").key, contrast)
    return list(first.values())


def _fixed_axes(
    factorial: Factorial, axis: Axis, labels: Labels, baseline: str
) -> dict[str, Scalar]:
    """Return the other axes that are constant in the block at a value that differs from the baseline's."""
    any_slug = next(iter(factorial.cells.values()))
    fixed: dict[str, Scalar] = {}
    for position, other_axis in enumerate(factorial.axes):
        indices = {cell[position] for cell in factorial.cells}
        value = axis_value(other_axis, labels[any_slug])
        is_other_value = value != axis_value(other_axis, labels[baseline])
        if other_axis != axis and len(indices) == 1 and is_other_value:
            fixed[" and ".join(other_axis)] = value
    return fixed


def declared_contrasts(
    loaded: LoadedExperiment,
    variants: Sequence[Variant],
    excluded: Sequence[ExcludedRecord],
    baseline: str,
    condition: FindCondition,
) -> tuple[ContrastRecord, ...]:
    """Return the contrasts that the file declares, between variants that are not excluded.

    The condition converts axis values to a predicate, as in ``exclude``.

    Raises:
        HeadToHeadError: For a side that matches no variant or several, for equal sides, for sides with different
            data, for a repeated contrast and for lengths without scores; with the location in the file.
    """
    base = next(variant for variant in variants if variant.slug == baseline)
    primary = reported_metrics(loaded, base.config).primary
    number_of: dict[object, int] = {}
    records: list[ContrastRecord] = []
    for number, declared in enumerate(loaded.file.contrasts):
        location = loaded.location("contrasts", number)
        for field in ("metric", "against_metric"):
            metric = getattr(declared, field)
            check_metric(metric, base.config, location.child(field), of_heads_too=True)
        selected = []
        for field in ("variant", "against"):
            when, at = getattr(declared, field), location.child(field)
            selected.append(_select(when, variants, excluded, base, condition, at))
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
    """Return the record of a declared contrast; the default name has the titles of both sides.

    Metric and lengths are part of the default name where they distinguish contrasts.
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
    titles = []
    for side, title in ((left, variant.title), (right, against.title)):
        details = []
        if side.metric and declared.against_metric:
            details.append(side.metric)
        if side.lengths:
            details.append(f"lengths {side.lengths[0]} to {side.lengths[1]}")
        titles.append(f"{title} ({', '.join(details)})" if details else title)
    return ContrastRecord(
        name=declared.name or " − ".join(titles),
        family="declared",
        settings=((left, right),),
        expect=declared.expect,
    )


def _refuse_different_groups(variant: Variant, against: Variant, location: SourceLocation) -> None:
    """Raise an error for variants with different data or sizes, whose scores are not compared."""
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
    """Return the variant with these axis values; other axes have the baseline's values."""
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
    """Raise an error for lengths that are not whole buckets, or of a metric without scores by length."""
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
    entry = find(metric)
    is_by_length = entry is not None and entry.pool is not None
    if not is_by_length or not metric.startswith("test/") or metric.endswith(UNPADDED):
        raise location.error(
            f"{metric} has no score by source length; use a metric of the test split"
        )
    starts = [1, *(bound + 1 for bound in buckets)]
    low, high = lengths
    if low > high or low not in starts or high not in buckets:
        start_list = ", ".join(map(str, starts))
        end_list = ", ".join(map(str, buckets))
        raise location.error(
            f"lengths must be whole buckets of evaluate.buckets: start at {start_list} and end at {end_list}; "
            f"got {low} to {high}"
        )
