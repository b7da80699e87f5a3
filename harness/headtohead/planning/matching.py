"""Equal parameters or FLOPs: the feed-forward of smaller variants is widened to match the largest.

Both counts are linear in d_ff, so two counts give the width that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headtohead.model.counting import Counts
from headtohead.planning.axes import Match
from headtohead.planning.design import Variant
from headtohead.schema.run_config import RunConfig

TOLERANCE = 0.01

Counter = Callable[[RunConfig], Counts]


@dataclass(frozen=True)
class Matched:
    """Variants after widening, and a sentence for each that could not be matched."""

    variants: tuple[Variant, ...]
    notes: tuple[str, ...]


def match_variants(variants: Sequence[Variant], count: Counter) -> Matched:
    """Widen every variant that asks for it to within 1 % of the largest of all variants."""
    largest = {
        match: max(measure(count(one.config), match) for one in variants)
        for match in {one.match for one in variants} - {"none"}
    }
    done, notes = [], []
    for variant in variants:
        if variant.match == "none":
            done.append(variant)
            continue
        target = largest[variant.match]
        config = _widened(variant.config, variant.match, target, count)
        reached = measure(count(config), variant.match)
        if abs(reached - target) > TOLERANCE * target:
            notes.append(
                f"match: {variant.match} cannot be met for {variant.slug}: "
                f"{reached:,.0f} against {target:,.0f} with d_ff {config.model.d_ff}"
            )
        done.append(replace(variant, config=config))
    return Matched(tuple(done), tuple(notes))


def measure(counts: Counts, match: Match) -> float:
    """Return what is matched: weights that do not grow with the vocabulary, or FLOPs per token."""
    return float(counts.non_embedding if match == "parameters" else counts.flops_per_token)


def widened(config: RunConfig, d_ff: int) -> RunConfig:
    """Return the configuration with another inner width of the feed-forward."""
    return config.model_copy(update={"model": config.model.model_copy(update={"d_ff": d_ff})})


def _widened(config: RunConfig, match: Match, target: float, count: Counter) -> RunConfig:
    asked = config.model.d_ff
    here = measure(count(config), match)
    slope = measure(count(widened(config, asked + 1)), match) - here
    return widened(config, max(asked, asked + round((target - here) / slope)))


def widths(before: Sequence[Variant]) -> Mapping[str, int]:
    """Return the d_ff that each variant asked for, by slug."""
    return {one.slug: one.config.model.d_ff for one in before}
