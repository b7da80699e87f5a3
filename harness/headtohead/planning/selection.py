"""Select a variant of a design by axis values, for published claims and for contrasts that the file declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headtohead.config.labels import Scalar
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation, shown
from headtohead.planning.axes import DATA_AXIS, Match
from headtohead.schema.run_config import RunConfig
from headtohead.storage.records import DeclaredContrast

if TYPE_CHECKING:
    from headtohead.planning.design import Variant

Conditions = Callable[[Mapping[str, Any], SourceLocation], list[Callable[[RunConfig, Match], bool]]]


def declared_contrasts(
    loaded: LoadedExperiment, variants: Sequence[Variant], baseline: str, conditions: Conditions
) -> tuple[DeclaredContrast, ...]:
    """Return the contrasts that the file declares.

    Args:
        loaded: The experiment file.
        variants: Variants of the design that are not excluded.
        baseline: Slug of the baseline.
        conditions: Converts axis values to predicates, as in ``exclude``.

    Raises:
        HeadToHeadError: For a side that matches no variant or several, for equal sides, for sides with different
            data, and for a repeated contrast; with the location in the file.
    """
    base = next(variant for variant in variants if variant.slug == baseline)
    contrasts: list[DeclaredContrast] = []
    for number, declared in enumerate(loaded.file.contrasts):
        location = loaded.location("contrasts", number)
        variant, against = (
            select_variant(getattr(declared, side), variants, base, conditions, location.child(side))
            for side in ("variant", "against")
        )
        if variant is against:
            raise location.error("variant and against are the same variant; name two different variants")
        if variant.axes.get(DATA_AXIS) != against.axes.get(DATA_AXIS):
            raise location.error("scores on different data are not compared; give both sides the same data")
        for other, contrast in enumerate(contrasts):
            if {variant.slug, against.slug} == {contrast.variant, contrast.against}:
                raise location.error(f"the same two variants as contrasts[{other}]; remove one of them")
        name = declared.name or f"{variant.title} − {against.title}"
        contrasts.append(DeclaredContrast(name=name, variant=variant.slug, against=against.slug))
    return tuple(contrasts)


def select_variant(
    when: Mapping[str, Any] | None,
    variants: Sequence[Variant],
    baseline: Variant,
    conditions: Conditions,
    location: SourceLocation,
) -> Variant:
    """Return the variant with these axis values; other axes have the baseline's values.

    Raises:
        HeadToHeadError: If no variant or several variants match.
    """
    if not when:
        return baseline
    wanted = conditions(when, location)
    matching = [variant for variant in variants if all(holds(variant.config, variant.match) for holds in wanted)]
    if len(matching) > 1:
        rest = {axis: value for axis, value in baseline.axes.items() if axis not in when}
        matching = [variant for variant in matching if _has(variant, rest)] or matching
    if len(matching) != 1:
        titles = "; ".join(variant.title for variant in (matching or variants)[:6])
        count = f"{len(matching)} variants have" if matching else "no variant of the design has"
        raise location.error(f"{count} {_written(when)}; expected one of: {titles}")
    return matching[0]


def _has(variant: Variant, values: Mapping[str, Scalar]) -> bool:
    return all(variant.axes.get(axis) == value for axis, value in values.items())


def _written(when: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis}: {shown(value)}" for axis, value in when.items())
