"""Factor-level contrasts: one axis value against the baseline's, averaged over the other axes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from headtohead.config.labels import Scalar, text
from headtohead.storage.records import FactorContrast, Pairs

Labels = Mapping[str, Mapping[str, Scalar]]
"""The axis values of every combination of the design, by slug."""


@dataclass(frozen=True)
class Factorial:
    """A product block: its axes, and the slug of each combination, by the numbers of its values."""

    axes: tuple[str, ...]
    cells: Mapping[tuple[int, ...], str]


def factor_contrasts(
    factorials: Iterable[Factorial], labels: Labels, baseline: str, live: Container[str]
) -> list[FactorContrast]:
    """Return the factor contrasts; of contrasts with equal pairs, only the first.

    Args:
        factorials: The product blocks of the design.
        labels: Axis values by slug, of excluded combinations too.
        baseline: Slug of the baseline.
        live: Slugs of the variants that run.
    """
    found: list[FactorContrast] = []
    by_labels = {tuple(axes.items()): slug for slug, axes in labels.items()}
    for factorial in factorials:
        for number in range(len(factorial.axes)):
            for contrast in _of_axis(factorial, number, labels, by_labels, baseline, live):
                if all(contrast.pairs != known.pairs for known in found):
                    found.append(contrast)
    return found


def _of_axis(
    factorial: Factorial,
    number: int,
    labels: Labels,
    by_labels: Mapping[tuple[tuple[str, Scalar], ...], str],
    baseline: str,
    live: Container[str],
) -> Iterable[FactorContrast]:
    axis, against = factorial.axes[number], labels[baseline][factorial.axes[number]]
    home = next((cell[number] for cell, slug in factorial.cells.items() if labels[slug][axis] == against), None)
    groups: dict[Scalar, dict[tuple[str, str | None], None]] = {}
    for cell, slug in factorial.cells.items():
        if home is None:
            moved = {**labels[slug], axis: against}
            other = by_labels.get(tuple(moved.items()))
        else:
            other = factorial.cells[(*cell[:number], home, *cell[number + 1 :])]
        if other != slug:
            groups.setdefault(labels[slug][axis], {})[slug, other] = None
    for group in groups.values():
        pairs = tuple((left, right) for left, right in group if right is not None and left in live and right in live)
        # a single pair is the contrast of two variants, not an average
        if pairs and len(group) > 1:
            yield _declared(factorial, axis, against, pairs, len(group) - len(pairs), labels, baseline)


def _declared(
    factorial: Factorial, axis: str, against: Scalar, pairs: Pairs, missing: int, labels: Labels, baseline: str
) -> FactorContrast:
    value = labels[pairs[0][0]][axis]
    given = _held(factorial, axis, labels, baseline)
    inside = ", ".join(f"{name} {text(one)}" for name, one in given.items())
    return FactorContrast(
        name=f"{axis}: {text(value)} − {text(against)}" + (f" ({inside})" if given else ""),
        axis=axis,
        value=value,
        against=against,
        given=given,
        pairs=pairs,
        pairs_missing=missing,
    )


def _held(factorial: Factorial, axis: str, labels: Labels, baseline: str) -> dict[str, Scalar]:
    """Return the other axes that the block holds at one value which is not the baseline's."""
    held = {}
    for number, name in enumerate(factorial.axes):
        if name != axis and len({cell[number] for cell in factorial.cells}) == 1:
            value = labels[next(iter(factorial.cells.values()))][name]
            if value != labels[baseline][name]:
                held[name] = value
    return held
