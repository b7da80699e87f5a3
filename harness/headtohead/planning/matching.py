"""Matching: ``match`` changes the width of feed-forward networks to equal parameters or FLOPs.

Variants are widened to match the largest one, or widened or narrowed to match the baseline. Both counts are linear in
``d_ff``, so two counts determine the required width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headtohead.config.labels import Scalar
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation
from headtohead.planning.costs import Costs
from headtohead.planning.design import Design
from headtohead.planning.variants import Match, Variant, comparison_group
from headtohead.schema.run_config import MAX_D_FF, RunConfig, changed
from headtohead.storage.metrics import counted

TOLERANCE = 0.01
"""Maximum relative difference of a matched count."""

PARAMETERS = "non-embedding parameters"
FLOPS = "FLOPs per token"
UNITS: dict[Match, str] = {
    "parameters": PARAMETERS,
    "baseline-parameters": PARAMETERS,
    "flops": FLOPS,
    "baseline-flops": FLOPS,
}
"""The count that each kind of matching makes equal."""
BASELINE_KINDS: tuple[Match, ...] = ("baseline-parameters", "baseline-flops")
"""The kinds that match the baseline; the others match the largest variant."""

NOT_REACHED = "match: {match} is not reached for {slug}: {reached:,.0f} instead of {target:,.0f} with d_ff {d_ff}"
CHANGED = "match: {match} changes d_ff of {variants} by {changes}, to the {target:,.0f} {unit} of {reference}"
LARGEST = "the largest variant, {slug}"
BASELINE = "the baseline"
NO_BASELINE = "'{match}' needs the baseline of {slug}, which the design lacks or excludes; add it, or set match: none"


class Target(NamedTuple):
    """A count, parameters or FLOPs, and the slug of the variant that has it; targets are compared by count."""

    size: float
    slug: str


def match_variants(
    loaded: LoadedExperiment, design: Design, costs: Costs
) -> tuple[tuple[Variant, ...], list[str]]:
    """Return the variants with the ``d_ff`` at which they have the count of the largest one or of the baseline.

    Only variants of the same data and size are matched with each other; variants with ``match: none`` are unchanged. A
    count that is not reached within 1 %, such as by the maximum of ``d_ff``, is a note and no error.

    Args:
        loaded: The experiment file, for the location of an error.
        design: The expanded design, which is not changed.
        costs: Counts models.

    Returns:
        The variants, one data set and size after the other, and notes on the result.

    Raises:
        HeadToHeadError: If a variant has a ``match`` and ``model.d_ff`` is an axis of the design; if a data set or size
            has no baseline to match; if a model cannot be built, or a plugin fails.
    """
    location = loaded.location("match")
    for variant in design.variants:
        if variant.match != "none" and "model.d_ff" in design.axes:
            raise location.error(
                f"'{variant.match}' changes model.d_ff, which is an axis of this design; set match: none"
            )
    groups: dict[tuple[tuple[str, Scalar], ...], list[Variant]] = {}
    for variant in design.variants:
        key = tuple(comparison_group(variant.axes).items())
        groups.setdefault(key, []).append(variant)
    matched: list[Variant] = []
    notes: list[str] = []
    for group in groups.values():
        targets = _targets(design, group, location, costs)
        changed_group, group_notes = _match_group(group, targets, costs)
        matched += changed_group
        notes += group_notes
    return tuple(matched), notes


def _match_group(
    variants: Sequence[Variant], targets: Mapping[Match, Target], costs: Costs
) -> tuple[list[Variant], list[str]]:
    """Return the variants of one data set and size in their order, with changed ``d_ff``, and notes on the result.

    Variants with ``match: none`` are returned unchanged. There is a note for each variant whose count differs from the
    target by more than `TOLERANCE`, then a note for each kind of match that changed a variant.

    Raises:
        HeadToHeadError: If a model cannot be built, or a plugin fails.
    """
    matched: list[Variant] = []
    notes: list[str] = []
    changes_of: dict[Match, list[float]] = {}
    for variant in variants:
        match = variant.match
        if match == "none":
            matched.append(variant)
            continue
        target = targets[match].size
        config = _with_count(variant.config, match, target, costs)
        reached = _measure(config, match, costs)
        d_ff = config.model.d_ff
        if d_ff != variant.config.model.d_ff:
            changes_of.setdefault(match, []).append(d_ff / variant.config.model.d_ff - 1)
        if abs(reached - target) > TOLERANCE * target:
            notes.append(
                NOT_REACHED.format(
                    match=match, slug=variant.slug, reached=reached, target=target, d_ff=d_ff
                )
            )
        matched.append(replace(variant, config=config))
    for match, changes in sorted(changes_of.items()):
        slug = targets[match].slug
        notes.append(
            CHANGED.format(
                match=match,
                variants=counted(len(changes), "variant"),
                changes=_range(changes),
                target=targets[match].size,
                unit=UNITS[match],
                reference=BASELINE if match in BASELINE_KINDS else LARGEST.format(slug=slug),
            )
        )
    return matched, notes


def _range(changes: Sequence[float]) -> str:
    """Return relative changes in percent: a single one, or the smallest and the largest."""
    smallest = _percent(min(changes))
    largest = _percent(max(changes))
    return smallest if smallest == largest else f"{smallest} to {largest}"


def _percent(change: float) -> str:
    """Return a relative change in percent, below 10 % with a decimal."""
    percent = 100 * change
    decimals = 0 if abs(percent) >= 10 else 1
    return f"{percent:+,.{decimals}f} %".replace("-", "−")


def _targets(
    design: Design, variants: Sequence[Variant], location: SourceLocation, costs: Costs
) -> dict[Match, Target]:
    """Return the count to match for each kind of match that a variant has; ``none`` has no target.

    It is that of the largest variant with this kind, or of the baseline of their data and size.

    Raises:
        HeadToHeadError: If the design lacks or excludes their baseline; if a model cannot be built, or a plugin fails.
    """
    targets: dict[Match, Target] = {}
    for variant in variants:
        match = variant.match
        if match == "none":
            continue
        reference = variant
        if match in BASELINE_KINDS:
            baseline = design.baseline_of(variant.slug)
            if baseline is None:
                raise location.error(NO_BASELINE.format(match=match, slug=variant.slug))
            reference = design.variant(baseline)
        target = Target(_measure(reference.config, match, costs), reference.slug)
        targets[match] = max(target, targets.get(match, target))
    return targets


def _with_count(config: RunConfig, match: Match, target: float, costs: Costs) -> RunConfig:
    """Return a configuration with the ``d_ff`` at which its count is nearest to the target.

    The width is at least 1 and at most ``MAX_D_FF``; to match the largest variant, ``d_ff`` is never reduced. If the
    count does not depend on ``d_ff``, the configuration is returned unchanged.

    Raises:
        HeadToHeadError: If a model cannot be built, or a plugin fails.
    """
    d_ff = config.model.d_ff
    count = _measure(config, match, costs)
    wider = changed(config, model={"d_ff": d_ff + 1})
    count_per_unit = _measure(wider, match, costs) - count
    if count_per_unit == 0:  # a quirk has replaced every feed-forward network
        return config
    least = 1 if match in BASELINE_KINDS else d_ff
    width = d_ff + round((target - count) / count_per_unit)
    return changed(config, model={"d_ff": min(MAX_D_FF, max(least, width))})


def _measure(config: RunConfig, match: Match, costs: Costs) -> float:
    """Return the count of a configuration's model that ``match``, which is not ``none``, makes equal."""
    counts = costs.counts(config)
    if UNITS[match] == PARAMETERS:
        return float(counts.non_embedding)
    return float(counts.flops_per_token)
