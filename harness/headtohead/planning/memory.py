"""Refuse variants whose weights and optimizer state do not fit into memory, before their models are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headtohead.config.loading import LoadedExperiment
from headtohead.planning.variants import Variant
from headtohead.plugins.launcher import gpu_memory, machine_memory
from headtohead.schema.run_config import RunConfig


def least_parameters(config: RunConfig) -> int:
    """Return the weights of the feed-forward networks, without building a module."""
    model, quirks = config.model, config.quirks
    in_decoder = 2 if quirks.decoder_feed_forward == "after-each" else 1
    networks = model.encoder_layers + in_decoder * model.decoder_layers
    return 2 * model.d_model * model.d_ff * (1 if "feed-forward" in quirks.shared_modules else networks)


def refuse_oversized(
    loaded: LoadedExperiment, variants: Sequence[Variant], parameters: Callable[[RunConfig], int]
) -> None:
    """Raise if a run of a variant cannot fit into the memory of this machine or of its GPU.

    A run needs at least its weights, and in training gradients and two moments. Activations are left out: a run that
    is out of memory divides its batch.

    Args:
        loaded: The experiment file.
        variants: The variants.
        parameters: Returns the number of weights of a variant, or a lower bound.

    Raises:
        HeadToHeadError: With the size of the first such variant and the available memory.
    """
    import torch

    available = max(machine_memory(), gpu_memory() if torch.cuda.is_available() else 0)
    for variant in variants:
        train, number = variant.config.train, parameters(variant.config)
        copies = 1 if train.epochs == 0 or variant.config.quirks.trainable is not None else 4
        needed = number * (8 if train.precision == "float64" else 4) * copies
        if needed > available:
            raise loaded.location("base", "model").error(
                f"variant '{variant.slug}' has at least {number:,} parameters, which need {needed / 2**30:,.1f} GiB in "
                f"training; {available / 2**30:,.1f} GiB are available; reduce d_model, d_ff, layers or the vocabulary"
            )
