"""Published claims and declared contrasts of an experiment file: check them and find the variants that they compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headtohead.config.labels import Scalar
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation, shown
from headtohead.errors import nearest
from headtohead.planning.axes import DATA_AXIS, Match
from headtohead.planning.variants import Variant
from headtohead.schema.config_input import SECTIONS
from headtohead.schema.experiment_file import Claim, Published
from headtohead.schema.run_config import RunConfig
from headtohead.storage.contrasts import DeclaredContrast, PublishedRecord

SETUP = ("data", "test", "pairs", "vocabulary", "parameters", "steps", "seeds", "decoding")
"""Names of ``published.setup`` that are not configuration fields; the report computes our value of each."""

COUNTED = ("test/exact_match", "test/bleu", "test/loss")
"""Metrics that can be computed over several length buckets from the counts per bucket."""

Conditions = Callable[[Mapping[str, Any], SourceLocation], list[Callable[[RunConfig, Match], bool]]]


def published_record(
    loaded: LoadedExperiment, variants: Sequence[Variant], baseline: str, conditions: Conditions
) -> PublishedRecord | None:
    """Return the published claims with slugs in place of axis values, or None if the file has no claims.

    Args:
        loaded: The experiment file.
        variants: Variants of the design that are not excluded.
        baseline: Slug of the baseline.
        conditions: Converts axis values to predicates, as in ``exclude``.

    Raises:
        HeadToHeadError: For a claim that matches no variant or several, for fields that contradict each
            other, and for an unknown name in ``setup``; with the location in the file.
    """
    published = loaded.file.published
    if published is None:
        return None
    _check_setup(published, loaded.location("published", "setup"))
    base = next(variant for variant in variants if variant.slug == baseline)
    claims = []
    for number, claim in enumerate(published.claims):
        location = loaded.location("published", "claims", number)
        _check(claim, location, base.config, loaded.file.metrics.primary)
        sides: dict[str, str | None] = {
            side: _select(getattr(claim, side), variants, base, conditions, location.child(side)).slug
            for side in ("variant", "against")
        }
        if claim.expect == "at-most":
            sides["against"] = None
        elif sides["variant"] == sides["against"] and not _sides_differ_otherwise(claim):
            raise location.error("variant and against are the same variant; name two different variants")
        claims.append(claim.model_dump(mode="json") | sides | {"metric": claim.metric or loaded.file.metrics.primary})
    return PublishedRecord.model_validate(published.model_dump(mode="json") | {"claims": claims})


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
            _select(getattr(declared, side), variants, base, conditions, location.child(side))
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


def _select(
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


def _check_setup(published: Published, location: SourceLocation) -> None:
    for name in published.setup:
        section, _, field = name.partition(".")
        fields = SECTIONS[section].model_fields if section in SECTIONS else {}
        if name not in SETUP and field not in fields:
            known = [*SETUP, *(f"{prefix}.{key}" for prefix, model in SECTIONS.items() for key in model.model_fields)]
            raise location.child(name).error(f"unknown name '{name}'{nearest(name, known)}")


def _check(claim: Claim, location: SourceLocation, config: RunConfig, primary: str) -> None:
    for field, expect in (("margin", "equal"), ("limit", "at-most")):
        is_set = getattr(claim, field) is not None
        if is_set and claim.expect != expect:
            raise location.child(field).error(f"{field} requires expect: {expect}, got expect: {claim.expect}")
        if not is_set and claim.expect == expect:
            raise location.error(f"expect: {expect} requires {field}; choose it before the first run")
    if claim.by and claim.expect not in ("higher", "lower"):
        raise location.child("by").error(f"by requires expect: higher or lower, got expect: {claim.expect}")
    size = "margin" if claim.margin is not None else "by" if claim.by else None
    if size and not claim.justification:
        raise location.error(f"{size} requires justification: state why a difference of this size matters")
    for field in ("lengths", "against_lengths"):
        _check_lengths(getattr(claim, field), config.evaluate.buckets, location.child(field))
    metric = claim.metric or primary
    _check_counted(metric, claim.lengths, location.child("lengths"))
    field = "against_lengths" if claim.against_lengths else "lengths"
    lengths = claim.against_lengths or claim.lengths
    _check_counted(claim.against_metric or metric, lengths, location.child(field))


def _check_lengths(lengths: tuple[int, int] | None, buckets: Sequence[int], location: SourceLocation) -> None:
    if lengths is None:
        return
    starts = [1, *(bound + 1 for bound in buckets)]
    low, high = lengths
    if low > high or low not in starts or high not in buckets:
        raise location.error(
            f"lengths must be whole buckets of evaluate.buckets: start at {_listed(starts)} and end at "
            f"{_listed(buckets)}; got {low} to {high}"
        )


def _check_counted(metric: str, lengths: tuple[int, int] | None, location: SourceLocation) -> None:
    if lengths is not None and metric not in COUNTED:
        *first, last = COUNTED
        raise location.error(f"{metric} has no score by source length; use {', '.join(first)} or {last}")


def _sides_differ_otherwise(claim: Claim) -> bool:
    """Return whether a claim compares a variant with itself on other lengths or by another metric."""
    return claim.against_lengths is not None or claim.against_metric is not None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
