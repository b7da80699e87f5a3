"""The quirks of a configuration, applied to batches and lengths."""

from __future__ import annotations

import numpy as np
import torch

from headtohead.errors import HeadToHeadError
from headtohead.model.batch import IGNORE_INDEX, Batch
from headtohead.plugins.quirk import Quirk
from headtohead.plugins.registry import calling, construct, registered
from headtohead.schema.run_config import RunConfig

KEY_SIDES = {"encoder": "source", "decoder": "target", "cross": "source"}
"""The side whose tokens are the keys, by attention role."""


def quirks_of(config: RunConfig) -> list[Quirk]:
    """Return the quirks of a configuration with their options.

    Raises:
        HeadToHeadError: If a quirk is not registered, or a plugin fails in its constructor.
    """
    quirks = []
    for name, options in config.quirks.items():
        quirk: type[Quirk] = registered("quirk", name)
        quirks.append(construct(quirk, options))
    return quirks


def key_sides(config: RunConfig) -> dict[str, str]:
    """Return the side whose tokens are the keys of each attention role, ``"source"`` or ``"target"``.

    Raises:
        HeadToHeadError: If a quirk is not registered, or the code of one fails.
    """
    sides = dict(KEY_SIDES)
    for quirk in quirks_of(config):
        with calling(type(quirk)):
            sides |= quirk.key_sides(quirk.options)
    return sides


def changed_batch(config: RunConfig, batch: Batch) -> Batch:
    """Return a batch as the quirks of a configuration change it, one after another; without quirks, the batch itself.

    Raises:
        HeadToHeadError: If a quirk is not registered, its code fails, or it returns something else than a batch of as
            many members and pairs.
    """
    pairs = batch.source.shape[:2]
    for quirk in quirks_of(config):
        with calling(type(quirk)):
            batch = quirk.change_batch(batch)
        if not isinstance(batch, Batch) or batch.decoder_input_ids.shape[:2] != pairs:
            raise HeadToHeadError(
                f"change_batch of quirk '{quirk.entry_name}' must return a Batch of as many pairs"
            )
    return batch


def decoder_input_lengths(config: RunConfig, target_lengths: np.ndarray) -> np.ndarray:
    """Return how many tokens the decoder reads of each target, as integers ``[target]``.

    Without quirks, it reads all but the last token. With quirks, they change a batch of such lengths.

    Args:
        config: A resolved configuration.
        target_lengths: Tokens of each target, boundary tokens included, ``[target]``; with quirks not empty.

    Raises:
        HeadToHeadError: If a quirk is not registered, its code fails, or it returns no batch of as many pairs.
    """
    if not config.quirks:
        return target_lengths - 1
    different, index = np.unique(target_lengths, return_inverse=True)
    lengths = torch.from_numpy(different.astype(np.int64)).unsqueeze(0)
    targets = torch.zeros(1, len(different), int(different.max()), dtype=torch.long)
    sources = torch.zeros(1, len(different), 1, dtype=torch.long)
    labels = torch.full_like(targets, IGNORE_INDEX)
    batch = Batch(sources, torch.ones_like(lengths), targets, labels, lengths - 1)
    changed: np.ndarray = changed_batch(config, batch).target_lengths[0].numpy()[index]
    return changed
