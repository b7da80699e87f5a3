"""A norm that divides each token by the mean of its absolute values.

Paper: authors, "title", venue, arXiv number, section: x / (mean(|x|) + ε), times a gain.
Departs from the paper: nothing.
"""

from torch import Tensor

from headtohead.plugin import Norm, hookimpl


class MyIdea(Norm):
    """x / (mean(|x|) + ε), times a gain per coordinate; the core multiplies by the gain."""

    properties = frozenset({"scale-invariant"})

    def formula(self) -> str:
        """Return the formula of the norm."""
        return "x / (mean(|x|) + ε) · γ"

    def normalise(self, x: Tensor) -> Tensor:
        """Return the normalised tokens, ``[member, tokens, d_model]``."""
        return x / (x.abs().mean(-1, keepdim=True) + self.context.model.norm_eps)


@hookimpl
def register_norms() -> dict[str, type[Norm]]:
    return {"my-idea": MyIdea}
