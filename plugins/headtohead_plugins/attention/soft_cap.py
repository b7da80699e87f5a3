"""Scores are capped softly: they approach a maximum instead of growing without bound.

Paper: Gemma Team. "Gemma 2: Improving Open Language Models at a Practical Size", 2024,
arXiv:2408.00118, section 2: c · tanh(S / c) before the mask, with c = 50 in attention. Biases of an
encoding are added before the cap.
"""

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, HeadOptions, hookimpl


class SoftCapOptions(HeadOptions):
    """The cap, and key/value heads."""

    cap: float = Field(50.0, gt=0, le=1e6, description="c: scores are between -c and c")


class SoftCap(Attention):
    """Split heads with scores between -c and c."""

    phrase = "with capped scores[ at {cap}]"
    Options = SoftCapOptions
    options: SoftCapOptions

    def formula(self) -> str:
        return f"S' = {self.options.cap:g} · tanh(S / {self.options.cap:g})"

    def mix_scores(self, scores: Tensor) -> Tensor:
        return self.options.cap * (scores / self.options.cap).tanh()


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"soft-cap": SoftCap}
