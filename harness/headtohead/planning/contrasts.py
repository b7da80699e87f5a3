"""Contrasts of product designs: axis values against the baseline's, averaged over other axes, and interactions."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from headtohead.config.labels import Scalar, text
from headtohead.planning.axes import DATA_AXIS
from headtohead.storage.contrasts import FactorContrast, InteractionContrast, Pairs

Labels = Mapping[str, Mapping[str, Scalar]]
"""The axis values of every combination of the design, by slug."""


@dataclass(frozen=True)
class Factorial:
    """A product block: its axes, and the slug of each combination by the indices of its values."""

    axes: tuple[str, ...]
    cells: Mapping[tuple[int, ...], str]


def factor_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, trainable: Container[str]
) -> list[FactorContrast]:
    """Return the factor contrasts, without repeats: of contrasts with the same pairs, the first.

    The axis ``data`` has none, because scores on different data are not compared.

    Args:
        factorials: The product blocks of the design.
        labels: Axis values by slug, including excluded combinations.
        baseline: Slug of the baseline.
        trainable: Slugs of the variants that are not excluded.
    """
    contrasts: list[FactorContrast] = []
    by_labels = {tuple(axes.items()): slug for slug, axes in labels.items()}
    for factorial in factorials:
        for position in (number for number, axis in enumerate(factorial.axes) if axis != DATA_AXIS):
            for contrast in _axis_contrasts(factorial, position, labels, by_labels, baseline, trainable):
                if all(contrast.pairs != other.pairs for other in contrasts):
                    contrasts.append(contrast)
    return contrasts


def interaction_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, trainable: Container[str]
) -> list[InteractionContrast]:
    """Return the interactions of every two axes of a product, each against the baseline's values, without repeats.

    Takes the arguments of `factor_contrasts`. A block without the baseline's value of an axis has no interactions of
    that axis.
    """
    contrasts: dict[frozenset[tuple[str, str]], InteractionContrast] = {}
    for factorial in factorials:
        # The axis `data` is last: differences within the same data are compared between data.
        order = sorted(range(len(factorial.axes)), key=lambda position: factorial.axes[position] == DATA_AXIS)
        for positions in itertools.combinations(order, 2):
            for contrast in _interactions(factorial, positions, labels, baseline, trainable):
                contrasts.setdefault(frozenset(contrast.pairs), contrast)
    return list(contrasts.values())


def _interactions(
    factorial: Factorial, positions: tuple[int, int], labels: Labels, baseline: str, trainable: Container[str]
) -> Iterable[InteractionContrast]:
    axes = [factorial.axes[position] for position in positions]
    origin = [labels[baseline][axis] for axis in axes]
    quads: dict[tuple[Scalar, Scalar], list[tuple[str, str, str, str]]] = {}
    by_values: dict[tuple[int, ...], dict[tuple[Scalar, Scalar], str]] = {}
    for cell, slug in factorial.cells.items():
        rest = tuple(index for position, index in enumerate(cell) if position not in positions)
        by_values.setdefault(rest, {})[labels[slug][axes[0]], labels[slug][axes[1]]] = slug
    for setting in by_values.values():
        for first, second in setting:
            slugs = (
                setting[first, second],
                setting.get((origin[0], second), ""),
                setting.get((first, origin[1]), ""),
                setting.get((origin[0], origin[1]), ""),
            )
            if first != origin[0] and second != origin[1] and all(slug in trainable for slug in slugs):
                quads.setdefault((first, second), []).append(slugs)
    fixed = _fixed_axes(factorial, axes[0], labels, baseline)
    condition = "".join(f", {name} {text(value)}" for name, value in fixed.items())
    for (first, second), settings in quads.items():
        yield InteractionContrast(
            name=f"{axes[0]}: {text(first)} − {text(origin[0])}, by {axes[1]}: {text(second)} − {text(origin[1])}"
            + condition,
            axis=axes[0],
            value=first,
            against=origin[0],
            other_axis=axes[1],
            other_value=second,
            other_against=origin[1],
            pairs=tuple(pair for a, b, c, d in settings for pair in ((a, b), (d, c))),
        )


def _axis_contrasts(
    factorial: Factorial,
    position: int,
    labels: Labels,
    by_labels: Mapping[tuple[tuple[str, Scalar], ...], str],
    baseline: str,
    trainable: Container[str],
) -> Iterable[FactorContrast]:
    axis = factorial.axes[position]
    against = labels[baseline][axis]
    index = next((cell[position] for cell, slug in factorial.cells.items() if labels[slug][axis] == against), None)
    groups: dict[Scalar, dict[tuple[str, str | None], None]] = {}
    for cell, slug in factorial.cells.items():
        if index is None:
            other = by_labels.get(tuple({**labels[slug], axis: against}.items()))
        else:
            other = factorial.cells[(*cell[:position], index, *cell[position + 1 :])]
        if other != slug:
            groups.setdefault(labels[slug][axis], {})[slug, other] = None
    for group in groups.values():
        pairs = tuple(
            (left, right) for left, right in group if right is not None and left in trainable and right in trainable
        )
        # A single pair is a contrast of two variants, not an average.
        if pairs and len(group) > 1:
            yield _factor_contrast(factorial, axis, against, pairs, len(group) - len(pairs), labels, baseline)


def _factor_contrast(
    factorial: Factorial, axis: str, against: Scalar, pairs: Pairs, missing: int, labels: Labels, baseline: str
) -> FactorContrast:
    value = labels[pairs[0][0]][axis]
    given = _fixed_axes(factorial, axis, labels, baseline)
    condition = ", ".join(f"{name} {text(fixed)}" for name, fixed in given.items())
    return FactorContrast(
        name=f"{axis}: {text(value)} − {text(against)}" + (f" ({condition})" if given else ""),
        axis=axis,
        value=value,
        against=against,
        given=given,
        pairs=pairs,
        pairs_missing=missing,
    )


def _fixed_axes(factorial: Factorial, axis: str, labels: Labels, baseline: str) -> dict[str, Scalar]:
    """Return the other axes that are constant in the block at a value that differs from the baseline's."""
    fixed = {}
    for position, name in enumerate(factorial.axes):
        if name != axis and len({cell[position] for cell in factorial.cells}) == 1:
            value = labels[next(iter(factorial.cells.values()))][name]
            if value != labels[baseline][name]:
                fixed[name] = value
    return fixed
