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

    def measure(config: RunConfig, match: Match) -> float:
        counts = count(config)
        return float(counts.non_embedding if match == "parameters" else counts.flops_per_token)

    def widened(config: RunConfig, d_ff: int) -> RunConfig:
        return config.model_copy(update={"model": config.model.model_copy(update={"d_ff": d_ff})})

    largest = {
        match: max(measure(variant.config, match) for variant in variants)
        for match in {variant.match for variant in variants} - {"none"}
    }
    matched, notes = [], []
    for variant in variants:
        config, match = variant.config, variant.match
        if match != "none":
            d_ff, current = config.model.d_ff, measure(config, match)
            slope = measure(widened(config, d_ff + 1), match) - current
            config = widened(config, min(MAX_D_FF, max(d_ff, d_ff + round((largest[match] - current) / slope))))
            reached = measure(config, match)
            if abs(reached - largest[match]) > TOLERANCE * largest[match]:
                notes.append(
                    f"match: {match} is not reached for {variant.slug}: "
                    f"{reached:,.0f} instead of {largest[match]:,.0f} with d_ff {config.model.d_ff}"
                )
        matched.append(replace(variant, config=config))
    return matched, notes
