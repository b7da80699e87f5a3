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
from headtohead.storage.contrasts import (
    DeclaredContrast,
    FactorContrast,
    InteractionContrast,
    Pairs,
)
from headtohead.storage.experiment import ExcludedRecord
from headtohead.storage.metrics import find

FindCondition = Callable[[Mapping[str, Any], SourceLocation], Callable[[Variant], bool]]

Labels = Mapping[str, Mapping[str, Scalar]]
"""The axis values of every combination of the design, by slug."""

Axis = tuple[str, ...]
"""The paths of an axis: one, or those of a ``zip``, which change together."""


@dataclass(frozen=True)
class Factorial:
    """A product block: its axes, and the slug of each combination by the indices of its values."""

    axes: tuple[Axis, ...]
    cells: Mapping[tuple[int, ...], str]


def factor_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, trainable: Container[str]
) -> list[FactorContrast]:
    """Return the factor contrasts, without repeats: of contrasts with the same pairs, the first.

    The axes ``data`` and ``size`` have none, because scores on different data or of different sizes are not compared.
    The labels include those of excluded combinations.
    """
    contrasts: dict[Pairs, FactorContrast] = {}
    by_labels = {tuple(axes.items()): slug for slug, axes in labels.items()}
    for factorial in factorials:
        for position, axis in enumerate(factorial.axes):
            if {DATA_AXIS, SIZE_AXIS} & {*axis}:
                continue
            against = {path: labels[baseline][path] for path in axis}
            index = next(
                (
                    c[position]
                    for c, slug in factorial.cells.items()
                    if against.items() <= labels[slug].items()
                ),
                None,
            )
            groups: dict[Scalar, dict[tuple[str, str | None], None]] = {}
            for cell, slug in factorial.cells.items():
                if index is None:
                    other = by_labels.get(tuple({**labels[slug], **against}.items()))
                else:
                    other = factorial.cells[(*cell[:position], index, *cell[position + 1 :])]
                if other != slug:
                    groups.setdefault(axis_value(axis, labels[slug]), {})[slug, other] = None
            given = _fixed_axes(factorial, axis, labels, baseline)
            condition = ", ".join(f"{name} {text(fixed)}" for name, fixed in given.items())
            for value, group in groups.items():
                pairs = tuple(
                    (left, right)
                    for left, right in group
                    if right and left in trainable and right in trainable
                )
                # A single pair is a contrast of two variants, not an average.
                if pairs and len(group) > 1:
                    name, of_baseline = " and ".join(axis), axis_value(axis, against)
                    contrast = FactorContrast(
                        name=_named(axis, f"{text(value)} − {text(of_baseline)}")
                        + (f" ({condition})" if given else ""),
                        axis=name,
                        value=value,
                        against=of_baseline,
                        given=given,
                        pairs=pairs,
                        pairs_missing=len(group) - len(pairs),
                    )
                    contrasts.setdefault(pairs, contrast)
    return list(contrasts.values())


def interaction_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, trainable: Container[str]
) -> list[InteractionContrast]:
    """Return the interactions of every two axes of a product, each against the baseline's values, without repeats.

    Takes the arguments of `factor_contrasts`. A block without the baseline's value of an axis has no interactions of
    that axis.
    """
    contrasts: dict[frozenset[tuple[str, str]], InteractionContrast] = {}
    for factorial in factorials:
        # The axes `data` and `size` are last: differences within the same data are compared between data.
        order = sorted(
            range(len(factorial.axes)),
            key=lambda position: bool({DATA_AXIS, SIZE_AXIS} & {*factorial.axes[position]}),
        )
        for positions in itertools.combinations(order, 2):
            axis, other_axis = axes = [factorial.axes[position] for position in positions]
            against, other_against = (axis_value(side, labels[baseline]) for side in axes)
            settings: dict[tuple[int, ...], dict[tuple[Scalar, Scalar], str]] = {}
            for cell, slug in factorial.cells.items():
                rest = tuple(
                    index for position, index in enumerate(cell) if position not in positions
                )
                settings.setdefault(rest, {})[
                    axis_value(axis, labels[slug]), axis_value(other_axis, labels[slug])
                ] = slug
            pairs: dict[tuple[Scalar, Scalar], list[tuple[str, str]]] = {}
            for setting in settings.values():
                for value, other in setting:
                    corners = itertools.product((value, against), (other, other_against))
                    a, c, b, d = (setting.get(corner, "") for corner in corners)
                    if (
                        value != against
                        and other != other_against
                        and all(slug in trainable for slug in (a, b, c, d))
                    ):
                        pairs.setdefault((value, other), []).extend([(a, b), (d, c)])
            given = _fixed_axes(factorial, axis, labels, baseline)
            condition = "".join(f", {name} {text(fixed)}" for name, fixed in given.items())
            name, other_name = (" and ".join(side) for side in axes)
            for (value, other), of_value in pairs.items():
                contrast = InteractionContrast(
                    name=_named(axis, f"{text(value)} − {text(against)}, by ")
                    + _named(other_axis, f"{text(other)} − {text(other_against)}{condition}"),
                    axis=name,
                    value=value,
                    against=against,
                    other_axis=other_name,
                    other_value=other,
                    other_against=other_against,
                    pairs=tuple(of_value),
                )
                contrasts.setdefault(frozenset(contrast.pairs), contrast)
    return list(contrasts.values())


def _named(axis: Axis, values: str) -> str:
    """Write the name of an axis before its values; those of a ``zip`` contain the names of their fields."""
    return f"{axis[0]}: {values}" if len(axis) == 1 else values


def _fixed_axes(
    factorial: Factorial, axis: Axis, labels: Labels, baseline: str
) -> dict[str, Scalar]:
    """Return the other axes that are constant in the block at a value that differs from the baseline's."""
    first = labels[next(iter(factorial.cells.values()))]
    return {
        " and ".join(other): axis_value(other, first)
        for position, other in enumerate(factorial.axes)
        if other != axis
        and len({cell[position] for cell in factorial.cells}) == 1
        and axis_value(other, first) != axis_value(other, labels[baseline])
    }


def _default_name(declared: ContrastDeclaration, variant: str, against: str) -> str:
    """Return the titles of both sides, with metric and lengths where these distinguish contrasts."""
    texts = []
    for title, metric, lengths in (
        (variant, declared.metric, declared.lengths),
        (
            against,
            declared.against_metric or declared.metric,
            declared.against_lengths or declared.lengths,
        ),
    ):
        details = [metric] if metric and declared.against_metric else []
        details += [f"lengths {lengths[0]} to {lengths[1]}"] if lengths else []
        texts.append(f"{title} ({', '.join(details)})" if details else title)
    return " − ".join(texts)


def declared_contrasts(
    loaded: LoadedExperiment,
    variants: Sequence[Variant],
    excluded: Sequence[ExcludedRecord],
    baseline: str,
    condition: FindCondition,
) -> tuple[DeclaredContrast, ...]:
    """Return the contrasts that the file declares, between variants that are not excluded.

    The condition converts axis values to a predicate, as in ``exclude``.

    Raises:
        HeadToHeadError: For a side that matches no variant or several, for equal sides, for sides with different
            data, for a repeated contrast and for lengths without scores; with the location in the file.
    """
    base = next(variant for variant in variants if variant.slug == baseline)
    others = "".join(f"; {variant.title} is excluded: {variant.reason}" for variant in excluded[:3])
    primary = reported_metrics(loaded, base.config).primary
    scores = "metric", "against_metric", "lengths", "against_lengths"
    contrasts: list[DeclaredContrast] = []
    for number, declared in enumerate(loaded.file.contrasts):
        location = loaded.location("contrasts", number)
        for field in ("metric", "against_metric"):
            check_metric(
                getattr(declared, field), base.config, location.child(field), of_heads_too=True
            )
        variant, against = (
            _select(
                getattr(declared, side), variants, others, base, condition, location.child(side)
            )
            for side in ("variant", "against")
        )
        contrast = DeclaredContrast(
            name=declared.name or _default_name(declared, variant.title, against.title),
            variant=variant.slug,
            against=against.slug,
            **{field: getattr(declared, field) for field in (*scores, "expect")},
        )
        if variant is against and contrast.same_score:
            raise location.error(
                "variant and against are the same variant; name two different variants"
            )
        if comparison_group(variant.axes) != comparison_group(against.axes):
            kind = "data" if variant.axes.get(DATA_AXIS) != against.axes.get(DATA_AXIS) else "size"
            scores_on = "on different data" if kind == "data" else "of different sizes"
            raise location.error(
                f"scores {scores_on} are not compared; give both sides the same {kind}"
            )
        for other, earlier in enumerate(contrasts):
            same = all(getattr(contrast, field) == getattr(earlier, field) for field in scores)
            if same and {*contrast.pairs[0]} == {*earlier.pairs[0]}:
                raise location.error(
                    f"the same two variants as contrasts[{other}]; remove one of them"
                )
        if declared.expect and declared.expect.direction == "equal" and not declared.expect.by:
            raise location.child("expect").error(
                "direction: equal requires by, the largest difference that agrees"
            )
        metric, buckets = declared.metric or primary, base.config.evaluate.buckets
        _check_lengths(declared.lengths, metric, buckets, location.child("lengths"))
        field, metric = (
            "against_lengths" if declared.against_lengths else "lengths",
            declared.against_metric or metric,
        )
        _check_lengths(getattr(declared, field), metric, buckets, location.child(field))
        contrasts.append(contrast)
    return tuple(contrasts)


def _select(
    when: Mapping[str, Any] | None,
    variants: Sequence[Variant],
    excluded_hint: str,
    baseline: Variant,
    condition: FindCondition,
    location: SourceLocation,
) -> Variant:
    """Return the variant with these axis values; other axes have the baseline's values."""
    if not when:
        return baseline
    holds = condition(when, location)
    matching = [variant for variant in variants if holds(variant)]
    if len(matching) > 1:
        rest = {axis: value for axis, value in baseline.axes.items() if axis not in when}.items()
        matching = [variant for variant in matching if rest <= variant.axes.items()] or matching
    if len(matching) != 1:
        titles = "; ".join(variant.title for variant in (matching or variants)[:6])
        count = f"{len(matching)} variants have" if matching else "no variant of the design has"
        written = ", ".join(f"{axis}: {shown(value)}" for axis, value in when.items())
        raise location.error(f"{count} {written}; expected one of: {titles}{excluded_hint}")
    return matching[0]


def _check_lengths(
    lengths: tuple[int, int] | None, metric: str, buckets: Sequence[int], location: SourceLocation
) -> None:
    if lengths is None:
        return
    known = find(metric)
    if (
        known is None
        or known.pool is None
        or not metric.startswith("test/")
        or metric.endswith(UNPADDED)
    ):
        raise location.error(
            f"{metric} has no score by source length; use a metric of the test split"
        )
    starts = [1, *(bound + 1 for bound in buckets)]
    low, high = lengths
    if low > high or low not in starts or high not in buckets:
        ends = [", ".join(map(str, bounds)) for bounds in (starts, buckets)]
        raise location.error(
            f"lengths must be whole buckets of evaluate.buckets: start at {ends[0]} and end at {ends[1]}; "
            f"got {low} to {high}"
        )
