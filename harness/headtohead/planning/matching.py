"""Matching: ``match`` widens the feed-forward of smaller variants to equal parameters or FLOPs.

Both counts are linear in ``d_ff``, so two counts determine the required width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headtohead.config.loading import LoadedExperiment
from headtohead.planning.costs import Costs
from headtohead.planning.variants import Match, Variant, comparison_group
from headtohead.schema.run_config import MAX_D_FF, RunConfig, changed
from headtohead.storage.metrics import counted

TOLERANCE = 0.01
"""Maximum relative difference of a matched count."""

UNITS: dict[Match, str] = {"parameters": "non-embedding parameters", "flops": "FLOPs per token"}
"""The count that each kind of matching makes equal."""

NOT_REACHED = "match: {match} is not reached for {slug}: {reached:,.0f} instead of {target:,.0f} with d_ff {d_ff}"
WIDENED = (
    "match: {match} widens d_ff of {variants} by up to {percent:.0f} %, to the {target:,.0f} {unit} of {largest}, "
    "which had the most before"
)


class Target(NamedTuple):
    """The largest count, parameters or FLOPs, and the slug of the variant that has it; they order by count."""

    size: float
    slug: str


def match_variants(
    loaded: LoadedExperiment, variants: Sequence[Variant], axes: Sequence[str], costs: Costs
) -> tuple[tuple[Variant, ...], list[str]]:
    """Return the variants, ``d_ff`` widened so that those with the same ``match`` have about the largest count.

    Only variants of the same data and size are matched with each other; variants with ``match: none`` are unchanged. A
    count that is not reached within 1 %, such as by the maximum of ``d_ff``, is a note and no error. ``d_ff`` is never
    reduced.

    Args:
        loaded: The experiment file, for the location of an error.
        variants: The variants, which are not changed.
        axes: The axes of the design.
        costs: Counts models.

    Returns:
        The variants, one data set and size after the other, and notes on the result.

    Raises:
        HeadToHeadError: If a variant has a ``match`` and ``model.d_ff`` is an axis of the design; if a model cannot be
            built, or a plugin fails.
    """
    for variant in variants:
        if variant.match != "none" and "model.d_ff" in axes:
            raise loaded.location("match").error(
                f"'{variant.match}' widens model.d_ff, which is an axis of this design; set match: none"
            )
    groups: dict[tuple[object, ...], list[Variant]] = {}
    for variant in variants:
        key = tuple(comparison_group(variant.axes).items())
        groups.setdefault(key, []).append(variant)
    matched: list[Variant] = []
    notes: list[str] = []
    for group in groups.values():
        widened, group_notes = _match_group(group, costs)
        matched += widened
        notes += group_notes
    return tuple(matched), notes


def _match_group(variants: Sequence[Variant], costs: Costs) -> tuple[list[Variant], list[str]]:
    """Return the variants of one data set and size in their order, widened, and notes on the result.

    Variants with ``match: none`` are returned unchanged. There is a note for each variant whose count differs from the
    target by more than `TOLERANCE`, then a note for each kind of match that widened a variant.

    Raises:
        HeadToHeadError: If a model cannot be built, or a plugin fails.
    """
    targets = _targets(variants, costs)
    matched: list[Variant] = []
    notes: list[str] = []
    # The ratio of the new d_ff to the old one, of each variant that was widened.
    factors_of: dict[Match, list[float]] = {}
    for variant in variants:
        match = variant.match
        if match == "none":
            matched.append(variant)
            continue
        target = targets[match].size
        config = _widened(variant.config, match, target, costs)
        reached = _measure(config, match, costs)
        if config.model.d_ff > variant.config.model.d_ff:
            factor = config.model.d_ff / variant.config.model.d_ff
            factors_of.setdefault(match, []).append(factor)
        if abs(reached - target) > TOLERANCE * target:
            notes.append(
                NOT_REACHED.format(
                    match=match,
                    slug=variant.slug,
                    reached=reached,
                    target=target,
                    d_ff=config.model.d_ff,
                )
            )
        matched.append(replace(variant, config=config))
    for match, factors in sorted(factors_of.items()):
        notes.append(
            WIDENED.format(
                match=match,
                variants=counted(len(factors), "variant"),
                percent=100 * (max(factors) - 1),
                target=targets[match].size,
                unit=UNITS[match],
                largest=targets[match].slug,
            )
        )
    return matched, notes


def _targets(variants: Sequence[Variant], costs: Costs) -> dict[Match, Target]:
    """Return the largest count for each kind of match that a variant has; ``none`` has no target."""
    targets: dict[Match, Target] = {}
    for variant in variants:
        if variant.match != "none":
            target = Target(_measure(variant.config, variant.match, costs), variant.slug)
            targets[variant.match] = max(target, targets.get(variant.match, target))
    return targets


def _widened(config: RunConfig, match: Match, target: float, costs: Costs) -> RunConfig:
    """Return a configuration with the ``d_ff`` at which its count is nearest to the target; ``d_ff`` is never reduced.

    The count is linear in ``d_ff``, so two counts determine the width. The width is at most ``MAX_D_FF``. If the count
    does not depend on ``d_ff``, the configuration is returned unchanged.

    Raises:
        HeadToHeadError: If a model cannot be built, or a plugin fails.
    """
    d_ff = config.model.d_ff
    count = _measure(config, match, costs)
    wider = changed(config, model={"d_ff": d_ff + 1})
    count_per_unit = _measure(wider, match, costs) - count
    if count_per_unit == 0:  # a quirk has replaced every feed-forward network
        return config
    width = max(d_ff, d_ff + round((target - count) / count_per_unit))
    return changed(config, model={"d_ff": min(MAX_D_FF, width)})


def _measure(config: RunConfig, match: Match, costs: Costs) -> float:
    """Return the count of a configuration's model that ``match``, which is not ``none``, makes equal."""
    counts = costs.counts(config)
    if match == "parameters":
        return float(counts.non_embedding)
    return float(counts.flops_per_token)
