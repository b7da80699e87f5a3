"""Heads that learn how sharply they look: queries are made longer or shorter, head by head.

Paper: authors, "title", venue, arXiv number, section: softmax(e^{t_h} · q kᵀ / √d_k) · v.
Departs from the paper: nothing.
"""

from torch import Tensor

from headtohead import Attention, BuildContext, Cost, Options, hookimpl


class MyIdea(Attention):
    """Split heads, each with a trained sharpness; at 0 it is plain attention."""

    cost = Cost(parameters="4*d**2 + h", biases="4*d", flops="4*n**2*d + 8*n*d**2")

    def build(self) -> None:
        """Draw one number per head, ``[member, head]``."""
        self.sharpness = self.parameter(self.context.geometry.heads, std=0.1)

    @classmethod
    def parameter_count(cls, options: Options, context: BuildContext) -> int:
        """Return the number of heads."""
        return context.geometry.heads

    def formula(self) -> str:
        """Return what becomes of the queries."""
        return "q_h · e^{t_h}, t_h learned"

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Make queries longer or shorter, ``[member, batch, head, time, width]``."""
        return q * self.sharpness.exp()[:, None, :, None, None], k


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``my-idea``."""
    return {"my-idea": MyIdea}
