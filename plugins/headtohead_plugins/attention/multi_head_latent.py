"""Keys and values computed from a short latent vector per token.

Paper: DeepSeek-AI. "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024,
arXiv:2405.04434, section 2.1, equations 9 to 19: with the latent vector c = RMSNorm(W_c x), head h has the values W_v c
and the keys [k_R; W_k c], where k_R = W_R x is the same in all heads. Scores are scaled by (d_R + d_h)^(-1/2). Queries
are compressed likewise with ``query_rank``. The norms are those of section 3.1.2 and of the authors' code.
The paper rotates only the first d_R coordinates of queries and keys:
``positional: {name: rotary, fraction: f}`` with f = d_R / (d_R + d_h), by default 1/3. Other encodings act on all
coordinates.
Departs from the paper: cached decoding stores keys and values instead of the latent vector. W are initialised normally
with variance 1 / width of the input. The default of ``kv_rank`` is d_model / 4 (the paper: d_model / 10).
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, Geometry, ModelConfig, hookimpl
from headtohead.plugin import Options as BaseOptions

EPS = 1e-6


class MultiHeadLatentOptions(BaseOptions):
    """Widths of the latent vectors and of the rotary part."""

    kv_rank: int | None = Field(
        None, ge=1, le=65_536, description="width of the latent vector; default: d_model / 4"
    )
    query_rank: int | None = Field(
        None,
        ge=1,
        le=65_536,
        description="width of the latent vector of queries; default: queries are not compressed",
    )
    rotary_width: int | None = Field(
        None,
        ge=0,
        le=65_536,
        description="d_R: width of the key part that all heads share; default: half the head width",
    )


def rms_normalised(x: Tensor, gain: Tensor) -> Tensor:
    """Return ``x [member, tokens, width]`` with root mean square 1, times the gain ``[member, width]``."""
    normalised = torch.rms_norm(x, x.shape[-1:], eps=EPS)
    return normalised * gain.unsqueeze(1)


class MultiHeadLatent(Attention):
    """Split heads with keys and values from a shared latent vector, and a key part that all heads share."""

    phrase = (
        "latent attention"
        "[ with keys and values of rank {kv_rank}]"
        "[ with queries of rank {query_rank}]"
        "[ with {rotary_width} rotated components]"
    )
    Options = MultiHeadLatentOptions
    options: MultiHeadLatentOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        """Return heads with values of width d_model / heads, and queries and keys that are wider by d_R."""
        assert isinstance(options, MultiHeadLatentOptions)
        split = super().geometry(options, model)
        rotary_width = options.rotary_width
        if rotary_width is None:
            half = split.key_width // 4 * 2  # even, because a rotation acts on pairs
            rotary_width = max(2, half)
        key_width = split.key_width + rotary_width
        scale = key_width**-0.5
        return Geometry(split.heads, split.heads, key_width, split.value_width, scale)

    def build(self) -> None:
        geometry = self.context.geometry
        d_model = self.context.d_model
        std = d_model**-0.5
        self.rank = self.options.kv_rank or max(1, d_model // 4)
        self.shared = geometry.key_width - geometry.value_width
        self.down = self.parameter(d_model, self.rank + self.shared, std=std)
        self.gain = self.parameter(self.rank, std=0.0, mean=1.0)
        keys_and_values = geometry.heads * 2 * geometry.value_width
        self.up = self.parameter(self.rank, keys_and_values, std=self.rank**-0.5)
        source_width = d_model
        if self.options.query_rank:
            source_width = self.options.query_rank
            self.query_down = self.parameter(d_model, source_width, std=std)
            self.query_gain = self.parameter(source_width, std=0.0, mean=1.0)
        queries = geometry.heads * geometry.key_width
        self.query_up = self.parameter(source_width, queries, std=source_width**-0.5)

    def formula(self) -> str:
        return "c = norm(W_c x); K_h = [W_R x; W_k c], V_h = W_v c"

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values; the part of the keys that all heads share comes first."""
        heads = self.context.geometry.heads
        compressed = x @ self.down
        latent, shared_key = compressed.split([self.rank, self.shared], dim=-1)
        c = rms_normalised(latent, self.gain)
        keys_and_values = (c @ self.up).unflatten(-1, (heads, -1))
        head_keys, values = keys_and_values.chunk(2, dim=-1)
        shared_keys = shared_key.unsqueeze(-2).expand(*head_keys.shape[:-1], -1)
        keys = torch.cat([shared_keys, head_keys], dim=-1)
        source = x
        if self.options.query_rank:
            source = rms_normalised(x @ self.query_down, self.query_gain)
        queries = source @ self.query_up
        return queries, keys.flatten(-2), values.flatten(-2)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"multi-head-latent": MultiHeadLatent}
