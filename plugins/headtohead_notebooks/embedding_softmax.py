"""No projections and no QKᵀ: weights are a softmax over the coordinates of the embedding.

Source: notebook 5, masked self-attention of the decoder: A = softmax(x + M), out = A · (x + M) with
M = -1e9 where a key is masked and 0 elsewhere. Coordinate j of a token is used as its score for
token j, so there must be as many tokens as coordinates. The mask is also added to the values, where
-1e9 dominates the outputs.
Departs from the notebook: M depends on the chosen masking; the notebook's is causal.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from headtohead.data.batches import padded_length
from headtohead.model.quirks import decoder_input_lengths
from headtohead.plugin import (
    Attention,
    Geometry,
    HeadToHeadError,
    ModelConfig,
    Options,
    Setting,
    hookimpl,
)


def masked_embeddings(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return ``x + M``, ``[member, batch, 1, time, d_model]``.

    >>> x = torch.zeros(1, 1, 2, 2)
    >>> masked_embeddings(x, torch.ones(1, 1, 1, 2, 2).tril().bool()).tolist()
    [[[[[0.0, -1000000000.0], [0.0, 0.0]]]]]
    """
    heads = x.unsqueeze(2)
    return heads if mask is None else torch.where(mask, heads, heads - 1e9)


class EmbeddingSoftmax(Attention):
    """Softmax of the masked embeddings; requires as many target tokens as d_model."""

    phrase = "a softmax of embeddings"
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "split-heads", "cross": "split-heads"}
    projects = False
    pitfalls: ClassVar[Mapping[str, str]] = {
        "mask on embeddings": "the mask is added to embeddings, not to scores: -1e9 removes nearly all information "
        "of earlier tokens"
    }
    # Those from source-reaches-logits on are violated under pre-norm, where -1e9 stays in the residual stream.
    known_violations = frozenset(
        {
            "target-reaches-logits",
            "gradients",
            "causality",
            "source-reaches-logits",
            "source-order",
            "source-mirror",
            "pad-content",
            "batch-of-one",
        }
    )

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        return Geometry(1, 1, model.d_model, model.d_model, 1.0)

    @classmethod
    def only_length(cls, options: Options, model: ModelConfig) -> int:
        return model.d_model

    @classmethod
    def incompatible_with(cls, options: Options, setting: Setting) -> str | None:
        """Require the decoder role, d_model target tokens, and decoding of whole targets."""
        if setting.role != "decoder":
            return (
                f"embedding-softmax is defined for the decoder only, got role '{setting.role}'; "
                "use another attention"
            )
        config = setting.config
        if config.evaluate.decode not in ("teacher-forced", "none"):
            return (
                f"embedding-softmax requires exactly {config.model.d_model} target tokens, which "
                f"decode '{config.evaluate.decode}' does not provide; set evaluate.decode: teacher-forced"
            )
        for tokens in _target_tokens(setting):
            if tokens != config.model.d_model:
                return (
                    f"embedding-softmax needs as many target tokens as d_model, got {tokens} and "
                    f"{config.model.d_model}; set model.d_model: {tokens}"
                )
        return None

    def formula(self) -> str:
        return "X + M, M = −10^9 where masked"

    def read(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the masked embeddings as scores and as values."""
        if x.shape[-2] != x.shape[-1]:
            raise HeadToHeadError(
                f"embedding-softmax needs as many target tokens as d_model, got {x.shape[-2]} and "
                f"{x.shape[-1]}; use targets of {x.shape[-1]} tokens, or change model.d_model"
            )
        masked = masked_embeddings(x, mask)
        return masked, masked


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"embedding-softmax": EmbeddingSoftmax}


def _target_tokens(setting: Setting) -> list[int]:
    """Return the numbers of decoder inputs for the longest target, unpadded and padded."""
    longest = setting.longest
    lengths = []
    if "target" in longest:
        lengths.append(longest["target"])
    if longest or setting.config.train.pad_to != "corpus":
        padded = padded_length(setting.config, longest)
        if padded is not None:
            lengths.append(padded)
    if not lengths:
        return []
    inputs: list[int] = decoder_input_lengths(setting.config, np.array(lengths)).tolist()
    return inputs
