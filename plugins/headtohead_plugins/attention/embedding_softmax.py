"""No projections and no QKᵀ: weights are a softmax over the embedding's own coordinates.

Source: notebook 5, the decoder's masked self-attention: A = softmax(x + M), out = A · (x + M) with
M = -1e9 where a key is masked and 0 elsewhere. Coordinate j of a token stands in the place of its
score for token j, so there must be as many tokens as coordinates. The mask reaches the values, and
drowns there what it should only hide.
Departs from the notebook: M follows the masking that is chosen; causal is the notebook's.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from headtohead import Attention, Cost, Geometry, HeadToHeadError, ModelConfig, Options, Setting, hookimpl


def masked_embeddings(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return ``x + M``, ``[member, batch, 1, time, d_model]``.

    >>> x = torch.zeros(1, 1, 2, 2)
    >>> masked_embeddings(x, torch.ones(1, 1, 1, 2, 2).tril().bool()).tolist()
    [[[[[0.0, -1000000000.0], [0.0, 0.0]]]]]
    """
    single = x.unsqueeze(2)
    return single if mask is None else torch.where(mask, single, single - 1e9)


class EmbeddingSoftmax(Attention):
    """Softmax of the masked embeddings themselves, for as many tokens as the model is wide."""

    cost = Cost(flops="2*d**3")
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "split-heads", "cross": "split-heads"}
    projects = False
    # The second line under pre-norm, where the -1e9 stay in the stream and drown the source too.
    known_violations = frozenset(
        {
            "hears-target",
            "gradients",
            "causality",
            "hears-source",
            "source-order",
            "source-mirror",
            "pad-content",
            "batch-of-one",
        }
    )

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return one head as wide as the model."""
        return Geometry(1, 1, model.d_model, model.d_model, 1.0)

    @classmethod
    def only_length(cls, options: Options, model: ModelConfig) -> int:
        """Return the width of the model."""
        return model.d_model

    @classmethod
    def incompatible_with(cls, options: Options, setting: Setting) -> str | None:
        """Refuse other roles, other lengths, and decoding that reads fewer tokens."""
        if setting.role != "decoder":
            return f"embedding-softmax is the decoder's own attention, got role '{setting.role}'"
        config = setting.config
        if config.evaluate.decode not in ("teacher-forced", "none"):
            return (
                f"embedding-softmax reads exactly {config.model.d_model} tokens at once, which "
                f"decode '{config.evaluate.decode}' does not; set evaluate.decode: teacher-forced"
            )
        for read in _tokens_read(setting):
            if read != config.model.d_model:
                return (
                    f"embedding-softmax needs as many target tokens as d_model, got {read} and "
                    f"{config.model.d_model}; set model.d_model: {read}"
                )
        return None

    def formula(self) -> str:
        """Return what stands in the place of scores and of values."""
        return "X + M, M = −10^9 where masked"

    def read(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the masked embeddings twice: as scores and as values."""
        if x.shape[-2] != x.shape[-1]:
            raise HeadToHeadError(
                f"embedding-softmax needs as many target tokens as d_model, got {x.shape[-2]} and "
                f"{x.shape[-1]}; take targets of {x.shape[-1]} tokens, or change model.d_model"
            )
        masked = masked_embeddings(x, mask)
        return masked, masked


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``embedding-softmax``."""
    return {"embedding-softmax": EmbeddingSoftmax}


def _tokens_read(setting: Setting) -> list[int]:
    """Return how many tokens the decoder reads of the longest target, padded and not."""
    train, quirks, longest = setting.config.train, setting.config.quirks, setting.longest
    lengths = [longest["target"]] if "target" in longest else []
    if train.batch_size is not None and isinstance(quirks.pad_to, int):
        lengths.append(quirks.pad_to)
    if train.batch_size is not None and quirks.pad_to == "corpus" and longest:
        lengths.append(max(longest.values()))
    return lengths if not quirks.shift_targets else [length - 1 for length in lengths]
