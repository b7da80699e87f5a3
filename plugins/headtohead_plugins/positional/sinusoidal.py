"""Sinusoids of geometric wavelengths, added to the embeddings.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.5:
P[p, 2i] = sin(p / 10000^(2i/d)), P[p, 2i+1] = cos(p / 10000^(2i/d)).
"""

import torch
from torch import Tensor

from headtohead import Options, Positional, Setting, hookimpl


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Return the table rows of ``positions``, ``[*positions.shape, width]``, in float64.

    >>> sinusoids(torch.tensor([0, 1]), 4)[1, 0].item() == torch.tensor(1.0).double().sin().item()
    True
    """
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double().unsqueeze(-1) * 10000.0 ** (-even / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


class Sinusoidal(Positional):
    """Fixed sinusoids added to the embeddings; an odd width drops the last cosine."""

    @classmethod
    def undefined_for(cls, options: Options, setting: Setting) -> str | None:
        """Refuse cross-attention, which has no embeddings of its own to add to."""
        if setting.role == "cross":
            return "sinusoidal adds to embeddings, which cross-attention has none of; use 'none'"
        return None

    def embed(self, positions: Tensor, role: str) -> Tensor:
        """Return the sinusoids of the positions, equal for every member."""
        return self.remember(sinusoids, positions, self.context.d_model).unsqueeze(0)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``sinusoidal``."""
    return {"sinusoidal": Sinusoidal}
