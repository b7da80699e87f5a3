"""The number of steps between validations, which follows from the cost of a validation."""

from __future__ import annotations

import numpy as np

from headtohead.data import PreparedData
from headtohead.model.quirks import decoder_input_lengths
from headtohead.planning.schedule import averaging_interval
from headtohead.schema.run_config import RunConfig

MAX_SHARE = 0.05
"""Largest cost of ten validations, as a fraction of the cost of the training."""

STEP_COST = 3.0
"""FLOPs of a training step, in forward passes."""


def evaluation_interval(
    config: RunConfig, data: PreparedData, steps: int, tokens_per_step: float
) -> int:
    """Return the number of steps between validations: ``evaluate_every``, or a tenth or a fifth of the steps.

    It is a fifth, every second of the tenths, if ten validations would cost more than ``MAX_SHARE`` of the training.
    With early stopping, which selects weights among those of the validations, it is a tenth.

    Args:
        config: A resolved configuration.
        data: Its data, with the split ``valid``.
        steps: Steps of the training.
        tokens_per_step: Decoder input tokens of a training batch, averaged over an epoch.

    Raises:
        HeadToHeadError: If a quirk is not registered, or its code fails.
    """
    train = config.train
    tenth = averaging_interval(train, steps)
    if train.evaluate_every is not None or train.early_stopping is not None:
        return tenth
    num_validations = -(-steps // tenth)
    training_cost = STEP_COST * tokens_per_step * steps
    is_cheap = num_validations * _padded_tokens(config, data) <= MAX_SHARE * training_cost
    return tenth if is_cheap else 2 * tenth


def _padded_tokens(config: RunConfig, data: PreparedData) -> int:
    """Return the decoder input positions of a validation, whose batches are padded to their longest example."""
    target_lengths = np.array([len(ids) for ids in data.splits["valid"].target])
    lengths = decoder_input_lengths(config, target_lengths)
    size = config.evaluate.batch_size
    tokens = 0
    for first in range(0, len(lengths), size):
        batch = lengths[first : first + size]
        tokens += len(batch) * int(batch.max())
    return tokens
