"""Match parameters or FLOPs: the feed-forward of smaller variants is widened to match the largest.

Both counts are linear in ``d_ff``, so two counts determine the required width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headtohead.planning.variants import Match, Variant
from headtohead.schema.run_config import MAX_D_FF, RunConfig
from headtohead.storage.experiment import ModelCounts

TOLERANCE = 0.01
"""Maximum relative difference of a matched count."""

CountFunction = Callable[[RunConfig], ModelCounts]


def match_variants(variants: Sequence[Variant], count: CountFunction) -> tuple[list[Variant], list[str]]:
    """Widen every variant with ``match`` to within 1 % of the largest; return notes on those that it is not reached."""
    largest = {
        match: max(measure(count(variant.config), match) for variant in variants)
        for match in {variant.match for variant in variants} - {"none"}
    }
    matched, notes = [], []
    for variant in variants:
        if variant.match == "none":
            matched.append(variant)
            continue
        target = largest[variant.match]
        config = _matched(variant.config, variant.match, target, count)
        reached = measure(count(config), variant.match)
        if abs(reached - target) > TOLERANCE * target:
            notes.append(
                f"match: {variant.match} is not reached for {variant.slug}: "
                f"{reached:,.0f} instead of {target:,.0f} with d_ff {config.model.d_ff}"
            )
        matched.append(replace(variant, config=config))
    return matched, notes


def measure(counts: ModelCounts, match: Match) -> float:
    """Return the matched count: non-embedding parameters or FLOPs per token."""
    return float(counts.non_embedding if match == "parameters" else counts.flops_per_token)


def widened(config: RunConfig, d_ff: int) -> RunConfig:
    """Return the configuration with another ``d_ff``."""
    return config.model_copy(update={"model": config.model.model_copy(update={"d_ff": d_ff})})


def _matched(config: RunConfig, match: Match, target: float, count: CountFunction) -> RunConfig:
    d_ff = config.model.d_ff
    current = measure(count(config), match)
    slope = measure(count(widened(config, d_ff + 1)), match) - current
    return widened(config, min(MAX_D_FF, max(d_ff, d_ff + round((target - current) / slope))))
