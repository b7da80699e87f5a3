"""Forget gates: the score of a key is reduced by every token between it and the query.

Paper: Z. Lin et al. "Forgetting Transformer: Softmax Attention with a Forget Gate". ICLR 2025,
arXiv:2503.02130, section 3: D_ij = Σ_{l=j+1..i} log f_l is added to the scores, f_t = σ(w · x_t + b) per
head and layer, x_t the input of the layer. The paper uses it instead of an encoding of positions.
w is initialised normally with variance 1 / d_model.
Departs from the paper: the paper has decoders only. Here an encoder adds the same sum over the tokens
between query and key in both directions.
"""

from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl, sums_between


class ForgettingOptions(BaseOptions):
    """Initial gates."""

    start: float = Field(
        0.0,
        ge=-20,
        le=20,
        description="b at initialisation; a token between query and key multiplies e^score by about σ(b)",
    )


class Forgetting(Positional):
    """A sum of the logarithms of gates, which depend on the tokens, added to the scores."""

    phrase = "forget gates"
    Options = ForgettingOptions
    options: ForgettingOptions
    properties = frozenset({"relative"})

    def build(self) -> None:
        layers = self.context.layers
        heads = self.context.geometry.heads
        d_model = self.context.d_model
        self.weight = self.parameter(layers, d_model, heads, std=d_model**-0.5)
        self.offset = self.parameter(layers, 1, heads, std=0.0, mean=self.options.start)

    def formula(self) -> str:
        return "B[i, j] = Σ_{l=j+1..i} log σ(w_h · x_l + b_h)"

    def content_bias(self, x: Tensor, queries: int, role: str, layer: int) -> Tensor:
        tokens = x.flatten(1, 2)
        logits = tokens @ self.weight[:, layer] + self.offset[:, layer]
        log_f = logsigmoid(logits)
        log_f_by_head = log_f.view(*x.shape[:3], -1).transpose(2, 3)
        sums = sums_between(log_f_by_head, queries)
        # A sum against the direction of the sequence has the opposite sign.
        return -sums.abs()


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"forgetting": Forgetting}
