"""Softmax attention in which each head learns its temperature.

Paper: authors, "title", venue, arXiv number, section: softmax(e^{t_h} · q kᵀ / √d_k) · v.
Departs from the paper: nothing.
"""

from torch import Tensor

from headtohead.plugin import Attention, hookimpl


class MyIdea(Attention):
    """Split heads with a learned inverse temperature e^{t_h}; t_h = 0 is plain softmax attention."""

    def build(self) -> None:
        """Create t, ``[member, head]``."""
        self.log_scale = self.parameter(self.context.geometry.heads, std=0.1)

    def formula(self) -> str:
        """Return the formula of the queries."""
        return "q_h · e^{t_h}, t_h learned"

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Scale the queries of each head, ``[member, batch, head, query, width]``."""
        return q * self.log_scale.exp()[:, None, :, None, None], k


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"my-idea": MyIdea}
