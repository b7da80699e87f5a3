"""A memory of keys and values that forgets by a gate and replaces the value of a key instead of adding to it.

Paper: S. Yang, J. Kautz, A. Hatamizadeh. "Gated Delta Networks: Improving Mamba2 with Delta Rule". ICLR 2025,
arXiv:2412.06464, section 3.1, equation 10: S_t = S_{t-1} α_t (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ, o_t = S_t q_t / √d_k,
with q and k of length 1, β_t = σ(x W_β) and α_t = exp(-exp(A) softplus(x W_α + b)), per head. The output of a head is
RMSNorm(o_t) ⊙ silu(x W_g), with one gain for all heads (section 3.4 and the authors' code,
https://github.com/NVlabs/GatedDeltaNet).
Here log α and β are two more coordinates of a key. Unrolled, the outputs are W V with lower triangular weights
W = (Q Kᵀ ⊙ Γ / √d_k) (I + tril(β K Kᵀ ⊙ Γ, -1))⁻¹ β, where Γ_{ij} is the product of α over j+1..i. The sequence is
one chunk of the paper, so that time grows with the square of the length, as in softmax attention.
Departs from the paper: no short convolutions and no SiLU on q, k and v.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad, silu, softplus

from headtohead import registered
from headtohead.plugin import (
    Attention,
    Geometry,
    MaskPattern,
    ModelConfig,
    Options,
    Setting,
    hookimpl,
    sums_between,
)

EPS = 1e-5
"""Epsilon of the output norm in the authors' code."""

REQUIRED_OF_MASKING = frozenset({"hides-future", "shows-the-rest"})
"""Properties of a masking in which a query reads exactly the tokens up to its own."""


def log_rate(out: Tensor, generator: torch.Generator) -> Tensor:
    """Return A: exp(A) is uniform between 0.01 and 16."""
    return out.uniform_(0.01, 16, generator=generator).log_()


def log_step(out: Tensor, generator: torch.Generator) -> Tensor:
    """Return b: softplus(b) is between 0.001 and 0.1, uniform in its logarithm."""
    lowest = math.log(0.001)
    highest = math.log(0.1)
    step = out.uniform_(lowest, highest, generator=generator).exp()
    # log(1 - e^-step) + step is the inverse of softplus.
    return step + torch.log(-torch.expm1(-step))


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x``, in float32 if its type is less precise."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.to(dtype)


class GatedDelta(Attention):
    """Split heads that read a memory with gated forgetting, in which a token replaces the value of its key."""

    phrase = "gated DeltaNet"
    role_defaults: ClassVar[Mapping[str, str]] = {"encoder": "split-heads", "cross": "split-heads"}
    weights = "signed"
    position_dependent = True
    temperature = None
    map_note = "factors of the values, computed for the map only: training computes no such matrix"
    unsupported: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("rotate", "bias", "content_bias", "score", "values"),
        "acts on queries, keys or weights of attention, and gated-delta reads a memory",
    )

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads, with two more coordinates of queries and keys."""
        split = super().geometry(options, model)
        return replace(split, key_width=split.key_width + 2)

    @classmethod
    def incompatible_with(cls, options: Options, setting: Setting) -> str | None:
        """Exclude roles and maskings in which a query does not read exactly the tokens up to its own."""
        if setting.role != "decoder":
            return f"gated-delta reads earlier tokens of a decoder; use another attention.{setting.role}"
        for entry in setting.config.masking.decoder.pattern:
            masking = registered("masking", entry.name)(entry.options)
            declared = masking.role_properties("decoder") or frozenset()
            if not declared >= REQUIRED_OF_MASKING:
                return f"gated-delta reads all tokens up to the query's; use padding-causal or causal, not {entry.name}"
        return None

    def build(self) -> None:
        heads = self.context.geometry.heads
        width = self.context.geometry.value_width
        d_model = self.context.d_model
        std = d_model**-0.5
        numbers_per_head = 3 * width + 2  # q, k, v, and the gates of α and β
        self.project_in = self.parameter(d_model, heads * numbers_per_head, std=std)
        # The authors' code marks both as parameters without weight decay.
        self.rate = self.parameter(heads, init=log_rate, weight_decay=False)
        self.step = self.parameter(heads, init=log_step, weight_decay=False)
        self.gate = self.parameter(d_model, heads * width, std=std)
        self.gain = self.parameter(width, std=0.0, mean=1.0)

    def formula(self) -> str:
        return "S_t = α_t S_{t−1} (I − β_t k_t k_t^T) + β_t v_t k_t^T, o_t = S_t q_t / √d_k; Z' = norm(o) ⊙ silu(X W_g)"

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys of length 1, with log α and β as the last coordinates of a key.

        Keys are at least float32, because the sum of many log α has more digits than bfloat16.
        """
        geometry = self.context.geometry
        width = geometry.value_width
        projected = x @ self.project_in
        parts = projected.unflatten(-1, (geometry.heads, -1))
        q, k, v, gates = parts.split([width, width, width, 2], dim=-1)
        exact = at_least_float32(gates)
        alpha_gate, beta_gate = exact.unbind(-1)
        rate = -self.rate.exp()[:, None]
        log_alpha = rate * softplus(alpha_gate + self.step[:, None])
        beta = beta_gate.sigmoid()
        factors = torch.stack([log_alpha, beta], dim=-1)
        unit_k = normalize(k, dim=-1)
        extended_k = torch.cat([unit_k, factors], dim=-1)
        unit_q = normalize(q, dim=-1)
        extended_q = pad(unit_q, (0, 2))
        return extended_q.flatten(-2), extended_k.flatten(-2), v.flatten(-2)

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Return W."""
        products, system, beta = self._factors(q, k)
        inner: Tensor = torch.linalg.solve_triangular(
            system, products, upper=False, left=False, unitriangular=True
        )
        return inner * beta.transpose(-2, -1)

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return scores
        return torch.where(mask, scores, 0.0)

    def fast_path(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern
    ) -> Tensor:
        """Return the outputs without W, unless the mask is another one than causal."""
        if mask is not None and pattern == "other":
            scores = self.scores(q, k, q, k)
            weights = self.normalise(scores, mask)
            heads = weights @ v.to(weights.dtype)
            return heads.to(v.dtype)
        products, system, beta = self._factors(q, k)
        visible = v
        if mask is not None:
            seen_by_a_query = mask.any(-2).unsqueeze(-1)
            visible = v * seen_by_a_query
        values = beta * visible
        inner: Tensor = torch.linalg.solve_triangular(
            system, values, upper=False, unitriangular=True
        )
        outputs = products @ inner
        return outputs.to(v.dtype)

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """Return the normalised heads times their gates."""
        normalised = torch.rms_norm(heads, heads.shape[-1:], eps=EPS)
        tokens = x.flatten(1, 2)
        gates = silu(tokens @ self.gate)
        gates_by_head = gates.view(*x.shape[:3], heads.shape[2], -1).transpose(2, 3)
        gain = self.gain[:, None, None, None]
        return normalised * gain * gates_by_head

    def _factors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q Kᵀ ⊙ Γ / √d_k, a matrix that is β K Kᵀ ⊙ Γ below its diagonal, and β; queries are the last keys."""
        q = at_least_float32(q)
        k = at_least_float32(k)
        width = k.shape[-1] - 2
        keys, log_alpha, beta = k.split([width, 1, 1], dim=-1)
        time = k.shape[-2]
        every_pair = torch.ones(time, time, dtype=torch.bool, device=k.device)
        later = every_pair.triu(1)
        log_gamma = sums_between(log_alpha.squeeze(-1))
        gamma = log_gamma.masked_fill(later, -torch.inf).exp()
        queries = q[..., :-2]
        products = queries @ keys.transpose(-2, -1) * self.context.geometry.scale
        system = (beta * keys) @ keys.transpose(-2, -1) * gamma
        gamma_of_queries = gamma[..., -q.shape[-2] :, :]
        return products * gamma_of_queries, system, beta


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"gated-delta": GatedDelta}
