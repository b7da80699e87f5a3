"""Equal weights: the output is the mean of the unmasked values.

Paper: A. Raganato, Y. Scherrer, J. Tiedemann. "Fixed Encoder Self-Attention Patterns in
Transformer-Based Machine Translation". Findings of EMNLP 2020, arXiv:2002.10260, section 3, study
other fixed patterns.
A negative control without queries and keys, hence half of the weights of split heads. All heads have
the same weights unless an encoding adds a bias; the scores are then this bias.
"""

from dataclasses import replace

from headtohead.plugin import Attention, Geometry, ModelConfig, Options, hookimpl


class Uniform(Attention):
    """Heads of width d_model / heads that average values; scores are 0 without an encoding."""

    phrase = "uniform attention"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        return replace(super().geometry(options, model), key_width=0, scale=1.0)

    def formula(self) -> str:
        return "S = 0: all unmasked keys have equal weights"


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"uniform": Uniform}
