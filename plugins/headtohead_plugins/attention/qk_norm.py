"""Normalised queries and keys: scores are cosines times a trained scale per head.

Paper: A. Henry et al. "Query-Key Normalization for Transformers". Findings of EMNLP 2020,
arXiv:2010.04245, section 3: softmax(g · q̂ k̂ᵀ), where g is trained and starts at log2(L² - L), with L
the length of a long sentence. With ``norm: rms``: M. Dehghani et al. "Scaling Vision Transformers to
22 Billion Parameters". ICML 2023, arXiv:2302.05442, section 2: softmax(norm(q) norm(k)ᵀ / √d_k).
Departs from the papers: g is per head and layer; the first paper has g per layer, the second a gain
per coordinate and LayerNorm, which also subtracts the mean. L is an option and not measured.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, Geometry, ModelConfig, hookimpl
from headtohead.plugin import Options as BaseOptions


class QkNormOptions(BaseOptions):
    """Norm, and initial value of the scale."""

    norm: Literal["unit", "rms"] = Field(
        "unit",
        description="unit: length 1, scores not scaled further; rms: root mean square 1, scores over √d_k",
    )
    length: int = Field(
        16,
        ge=3,
        le=100_000,
        description="L: with norm unit, g starts at log2(L² - L); with rms, at 1",
    )


def unit(x: Tensor) -> Tensor:
    """Return ``x`` with vectors of length 1 along the last axis.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    return torch.nn.functional.normalize(
        x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1
    ).to(x.dtype)


class QkNorm(Attention):
    """Split heads with scores that depend on the directions of queries and keys only."""

    Options = QkNormOptions
    options: QkNormOptions

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads, with unscaled scores for unit vectors."""
        assert isinstance(options, QkNormOptions)
        geometry = super().geometry(options, model)
        return replace(geometry, scale=1.0) if options.norm == "unit" else geometry

    def build(self) -> None:
        start = math.log2(self.options.length**2 - self.options.length)
        self.is_unit = self.options.norm == "unit"
        mean = start if self.is_unit else 1.0
        self.gain = self.parameter(self.context.geometry.heads, std=0.0, mean=mean)

    def formula(self) -> str:
        norm = "|x|" if self.is_unit else "rms(x)"
        return f"x / {norm} for x = q, k; queries times g_h"

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Normalise queries and keys; g multiplies the queries."""
        root = 1.0 if self.is_unit else q.shape[-1] ** 0.5
        return unit(q) * root * self.gain[:, None, :, None, None], unit(k) * root


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"qk-norm": QkNorm}
