"""A short causal convolution over the tokens, before the projections.

Paper: Z. Allen-Zhu. "Physics of Language Models: Part 4.1, Architecture Design and the Magic of Canon
Layers". NeurIPS 2025, arXiv:2512.17351, section 3, Canon-A: x'_t = x_t + Σ_k w_k ⊙ x_{t-k} for
k = 0..K-1, with K = 4, separately in each channel, without bias and activation. As in the authors'
code, w is initialised uniformly with bound K^(-1/2).
Departs from the paper: the paper has decoders only. Here an encoder uses the same causal convolution.
Self-attention only: the queries of cross-attention are outputs of self-attention.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from headtohead.plugin import Attention, HeadOptions, hookimpl


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
        bound = kernel**-0.5
        uniform = lambda out, generator: out.uniform_(-bound, bound, generator=generator)  # noqa: E731
        self.kernel = self.parameter(kernel, self.context.d_model, init=uniform)

    def formula(self) -> str:
        return f"x'_t = x_t + Σ_{{k < {self.options.kernel}}} w_k ⊙ x_{{t−k}}"

    def mix_tokens(self, x: Tensor) -> Tensor:
        return convolved(x, self.kernel)


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Return each vector plus the weighted vectors of its token and of earlier ones.

    Args:
        x: ``[member, batch, token, width]``.
        kernel: The weights of the token itself and of the tokens before it, ``[member, K, width]``.
    """
    time = x.shape[2]
    weights = kernel[:, :, None, None].unbind(1)
    zeros = len(weights) - 1
    padded = pad(x, (0, 0, zeros, 0))
    for k, weight in enumerate(weights):
        start = zeros - k
        earlier = padded[:, :, start : start + time]
        x = x + weight * earlier
    return x


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"short-convolution": ShortConvolution}
