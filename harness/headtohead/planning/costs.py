"""Costs of variants, which ``match`` makes equal: the feed-forward of smaller variants is widened.

Both counts that can be matched are linear in ``d_ff``, so two counts determine the required width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headtohead.config.entries import watched_entries
from headtohead.config.loading import LoadedExperiment
from headtohead.data import PreparedData
from headtohead.data.vocabulary import IGNORE_INDEX
from headtohead.model import counting
from headtohead.model.builder import build_components
from headtohead.model.plugin_errors import model_plugins, plugin_errors
from headtohead.planning.variants import Match, Variant
from headtohead.plugins.launcher import gpu_memory, machine_memory
from headtohead.schema.run_config import MAX_D_FF, RunConfig, changed
from headtohead.storage.experiment import ModelCounts, VariantRecord
from headtohead.storage.metrics import counted

TRAINING = 3.0
"""FLOPs of a training step, in forward passes."""

TOLERANCE = 0.01
"""Maximum relative difference of a matched count."""


def count_model(config: RunConfig, data: PreparedData) -> ModelCounts:
    """Return the counts of a model, which is built and called: the first time that the code of a plugin runs."""
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    with plugin_errors(config), watched_entries([config]):
        if model_plugins(config):
            build_components(config, range(1, 5))
        source, target = (float(lengths.mean()) for lengths in data.train_lengths)
        labels = data.splits["train"].labels
        mean_labels = (
            None
            if labels is None
            else sum((ids != IGNORE_INDEX).sum() for ids in labels) / len(labels)
        )
        return counting.count(
            config, *words, source, target - config.quirks.shift_targets, mean_labels
        )


def refuse_oversized(
    loaded: LoadedExperiment, variant: Variant | VariantRecord, weights: int | None = None
) -> None:
    """Raise if a run of a variant with ``weights`` cannot fit into the memory of this machine or of its GPU.

    By default the weights are a lower bound, those of the feed-forward networks, for which no module is built.

    A run needs at least its weights, and in training gradients and two moments. Activations are left out: a run that
    is out of memory divides its batch.
    """
    import torch

    available = max(machine_memory(), gpu_memory() if torch.cuda.is_available() else 0)
    train, model = variant.config.train, variant.config.model
    networks = 1 if variant.config.quirks.shared_modules else model.layers_in_all
    number = weights or 2 * model.d_model * model.d_ff * networks
    copies = 1 if train.epochs == 0 or variant.config.quirks.trainable is not None else 4
    needed = number * (8 if train.precision == "float64" else 4) * copies
    if needed > available:
        raise loaded.location("base", "model").error(
            f"variant '{variant.slug}' has at least {number:,} parameters, which need {needed / 2**30:,.1f} GiB in "
            f"training; {available / 2**30:,.1f} GiB are available; reduce d_model, d_ff, layers or the vocabulary"
        )


def match_variants(
    variants: Sequence[Variant], count: Callable[[RunConfig], ModelCounts]
) -> tuple[list[Variant], list[str]]:
    """Widen every variant with ``match`` to within 1 % of the largest; return notes on the result."""

    def measure(config: RunConfig, match: Match) -> float:
        counts = count(config)
        return float(counts.non_embedding if match == "parameters" else counts.flops_per_token)

    largest = {
        match: max(
            (measure(variant.config, match), variant.slug)
            for variant in variants
            if variant.match == match
        )
        for match in sorted({variant.match for variant in variants} - {"none"})
    }
    matched, notes = [], []
    factors: dict[Match, list[float]] = {match: [] for match in largest}
    for variant in variants:
        config, match = variant.config, variant.match
        if match != "none":
            (target, _), d_ff, current = largest[match], config.model.d_ff, measure(config, match)
            slope = measure(changed(config, model={"d_ff": d_ff + 1}), match) - current
            width = min(MAX_D_FF, max(d_ff, d_ff + round((target - current) / slope)))
            config = changed(config, model={"d_ff": width})
            factors[match] += [config.model.d_ff / d_ff] * (config.model.d_ff > d_ff)
            reached = measure(config, match)
            if abs(reached - target) > TOLERANCE * target:
                notes.append(
                    f"match: {match} is not reached for {variant.slug}: "
                    f"{reached:,.0f} instead of {target:,.0f} with d_ff {config.model.d_ff}"
                )
        matched.append(replace(variant, config=config))
    for match, (target, slug) in largest.items():
        if wider := factors[match]:
            unit = "non-embedding parameters" if match == "parameters" else "FLOPs per token"
            notes.append(
                f"match: {match} widens d_ff of {counted(len(wider), 'variant')} by up to "
                f"{100 * (max(wider) - 1):.0f} %, to the {target:,.0f} {unit} of {slug}, which had the most before"
            )
    return matched, notes
