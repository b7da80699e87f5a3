"""Canon layers: short causal convolutions over the tokens at up to four positions of a layer.

Paper: Z. Allen-Zhu. "Physics of Language Models: Part 4.1, Architecture Design and the Magic of Canon
Layers". NeurIPS 2025, arXiv:2512.17351, section 3: h'_t = h_t + Σ_k w_k ⊙ h_{t-k} for k = 0..K-1, with
K = 4, separately in each channel, without bias and activation.

Position A is the inputs of attention, after the norm of a pre-norm model. B is queries, keys and values of all heads,
before positions are encoded. C is the inputs of the feed-forward network, after the norm of a pre-norm model. D is the
result of the network's first map, with the gate of a gated network, before the activation.

``short-convolution`` is position A alone. As in the authors' code, w is initialised uniformly with bound K^(-1/2).
Departs from the paper: the paper has decoders only. Here an encoder uses the same causal convolutions.
Self-attention only: in a decoder with cross-attention, positions C and D come after it.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from headtohead.plugin import Attention, HeadOptions, hookimpl


class CanonOptions(HeadOptions):
    """Positions and length of the convolutions, and key/value heads."""

    at: Annotated[str, Field(min_length=1, pattern="^A?B?C?D?$")] = Field(
        "ABCD", description="positions with a convolution, of A, B, C and D in this order"
    )
    kernel: int = Field(4, ge=1, le=64, description="K: the token itself and K - 1 earlier ones")


class Canon(Attention):
    """Split heads with short convolutions before and in attention and feed-forward network."""

    phrase = "with canon layers[ at {at}][ of {kernel} tokens]"
    Options = CanonOptions
    options: CanonOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    def build(self) -> None:
        width = self.context.d_model
        geometry = self.context.geometry
        joined = (geometry.heads + geometry.kv_heads) * geometry.key_width
        joined += geometry.value_heads * geometry.value_width
        self._create_kernel("A", width)
        self._create_kernel("B", joined)
        self._create_kernel("C", width)

    def build_inner(self, width: int) -> None:
        self._create_kernel("D", width)

    def _create_kernel(self, position: str, width: int) -> None:
        if position not in self.options.at:
            return
        kernel = self.options.kernel
        setattr(self, position, self.parameter(kernel, width, init=uniform(kernel)))

    def formula(self) -> str:
        return f"h'_t = h_t + Σ_{{k < {self.options.kernel}}} w_k ⊙ h_{{t−k}} at {', '.join(self.options.at)}"

    def mix_tokens(self, x: Tensor) -> Tensor:
        """Position A."""
        return self._convolved("A", x)

    def mix_projections(self, x: Tensor) -> Tensor:
        """Position B."""
        return self._convolved("B", x)

    def mix_feed_forward(self, x: Tensor) -> Tensor:
        """Position C."""
        return self._convolved("C", x)

    def mix_inner(self, x: Tensor) -> Tensor:
        """Position D."""
        return self._convolved("D", x)

    def _convolved(self, position: str, x: Tensor) -> Tensor:
        """Add the weighted vectors of the token and of earlier ones, if the position has a convolution."""
        if position not in self.options.at:
            return x
        return convolved(x, getattr(self, position))


class ShortConvolutionOptions(HeadOptions):
    """Length of the convolution, and key/value heads."""

    kernel: int = Field(4, ge=1, le=64, description="K: the token itself and K - 1 earlier ones")


class ShortConvolution(Attention):
    """Split heads with inputs that are weighted sums of a token and a few earlier ones."""

    phrase = "with a short convolution[ of {kernel} tokens]"
    Options = ShortConvolutionOptions
    options: ShortConvolutionOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    def build(self) -> None:
        kernel = self.options.kernel
        self.kernel = self.parameter(kernel, self.context.d_model, init=uniform(kernel))

    def formula(self) -> str:
        return f"x'_t = x_t + Σ_{{k < {self.options.kernel}}} w_k ⊙ x_{{t−k}}"

    def mix_tokens(self, x: Tensor) -> Tensor:
        return convolved(x, self.kernel)


def uniform(kernel: int) -> Callable[[Tensor, torch.Generator], Tensor]:
    """Return a function that fills the weights of a convolution over ``kernel`` tokens with initial values."""
    bound = kernel**-0.5

    def fill(out: Tensor, generator: torch.Generator) -> Tensor:
        return out.uniform_(-bound, bound, generator=generator)

    return fill


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Return each vector plus the weighted vectors of its token and of earlier ones.

    Args:
        x: ``[member, batch, token, width]``.
        kernel: The weights of the token itself and of the tokens before it, ``[member, K, width]``.
    """
    time = x.shape[2]
    weights = kernel[:, :, None, None].unbind(1)
    num_earlier = len(weights) - 1
    padded = pad(x, (0, 0, num_earlier, 0))
    for k, weight in enumerate(weights):
        start = num_earlier - k
        earlier = padded[:, :, start : start + time]
        x = x + weight * earlier
    return x


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"canon": Canon, "short-convolution": ShortConvolution}
