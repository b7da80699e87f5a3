"""Every key alike: the mean of the values that a query may see, whatever they say.

The negative control of "attention matters". Fixed patterns in the place of attention are studied in
A. Raganato, Y. Scherrer, J. Tiedemann. "Fixed Encoder Self-Attention Patterns in Transformer-Based
Machine Translation". Findings of EMNLP 2020, arXiv:2002.10260, section 3.
There are no queries and no keys, so half of the weights of split heads. All heads have one pattern,
unless an encoding adds to the scores, which then are that encoding alone, still without content.
"""

from dataclasses import replace

from headtohead import Attention, Cost, Geometry, ModelConfig, Options, hookimpl


class Uniform(Attention):
    """Heads of width d_model / heads that average; scores are 0 without an encoding."""

    cost = Cost(parameters="2*d**2", biases="2*d", flops="2*n**2*d + 4*n*d**2")

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads without keys."""
        return replace(super().geometry(options, model), key_width=0, scale=1.0)

    def formula(self) -> str:
        """Return the scores, which an encoding may add to."""
        return "S = 0: each key that a query may see weighs alike"


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``uniform``."""
    return {"uniform": Uniform}
