"""Sinusoids of geometric wavelengths, added to the embeddings.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.5:
P[p, 2i] = sin(p / 10000^(2i/d)), P[p, 2i+1] = cos(p / 10000^(2i/d)).
Departs from the paper: with ``index: row``, p is the sentence's row in its batch, as notebook 3
has it by mistake; its encoder then is a bag of words.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import HeadToHeadError, Positional, Setting, hookimpl
from headtohead import Options as BaseOptions
from headtohead.experiment.schema import Neutral


class SinusoidalOptions(BaseOptions):
    """How the table is computed."""

    arithmetic: Annotated[Literal["exact", "single", "single-log"], Neutral("exact")] = Field(
        "exact",
        description="exact: in double precision; single: angles in single precision, as notebooks "
        "1 to 3 compute them, off by 1e-5 at position 128; single-log: log 10000 too, as notebook "
        "4 does",
    )
    index: Annotated[Literal["time", "row"], Neutral("time")] = Field(
        "time",
        description="what p counts: places in the sentence, or rows of the batch, as in notebook 3",
    )
    max_len: Annotated[int, Neutral(128)] = Field(
        128, ge=1, description="with index row: rows in the table; a larger batch is refused"
    )


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Return the table rows of ``positions``, ``[*positions.shape, width]``, in float64.

    >>> sinusoids(torch.tensor([0, 1]), 4)[1, 0].item() == torch.tensor(1.0).double().sin().item()
    True
    """
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double().unsqueeze(-1) * 10000.0 ** (-even / width)
    return _side_by_side(angles, width)


def single_sinusoids(positions: Tensor, width: int, log: Tensor | float) -> Tensor:
    """As ``sinusoids``, every step in float32, with ``log`` for the logarithm of 10000."""
    even = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device)
    angles = positions.float().unsqueeze(-1) * torch.exp(even * -(log / width))
    return _side_by_side(angles, width)


class Sinusoidal(Positional):
    """Fixed sinusoids added to the embeddings; an odd width drops the last cosine."""

    Options = SinusoidalOptions
    options: SinusoidalOptions

    @classmethod
    def index(cls, options: BaseOptions) -> Literal["time", "row"]:
        """Return what the options say."""
        assert isinstance(options, SinusoidalOptions)
        return options.index

    @classmethod
    def broken_by(cls, options: BaseOptions) -> dict[str, str]:
        """Return that single precision is no double precision."""
        assert isinstance(options, SinusoidalOptions)
        if options.arithmetic == "exact":
            return {}
        return {"precision": f"arithmetic: {options.arithmetic}"}

    @classmethod
    def undefined_for(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse cross-attention, which has no embeddings, and batches larger than the table."""
        assert isinstance(options, SinusoidalOptions)
        if setting.role == "cross":
            return "sinusoidal adds to embeddings, which cross-attention has none of; use 'none'"
        rows = _most_rows(setting)
        if options.index == "row" and rows > options.max_len:
            return (
                f"sinusoidal with index 'row' has {options.max_len} rows, and a batch may have "
                f"{rows} sentences; set train.batch_size and evaluate.batch_size to at most "
                f"{options.max_len}"
            )
        return None

    def embed(self, positions: Tensor, role: str) -> Tensor:
        """Return the sinusoids of the positions, equal for every member."""
        return self.remember(self._table, positions, role)

    def formula(self) -> str:
        """Return the sinusoids, and what p counts."""
        counted = "place in the sentence" if self.options.index == "time" else "row of the batch"
        waves = "P[p, 2i] = sin(p / 10000^{2i/d}), P[p, 2i+1] = cos(p / 10000^{2i/d})"
        return f"{waves}, p: {counted}"

    def _table(self, positions: Tensor, role: str) -> Tensor:
        options, width = self.options, self.context.d_model
        assert isinstance(options, SinusoidalOptions)
        if options.index == "row" and len(positions) > options.max_len:
            raise HeadToHeadError(
                f"a batch of {len(positions)} sentences is larger than the table of "
                f"{options.max_len} rows that positional.{role} with index 'row' has; "
                f"make batches smaller, or set positional.{role}.max_len higher"
            )
        if options.arithmetic == "exact":
            return sinusoids(positions, width).unsqueeze(0)
        single = options.arithmetic == "single"
        log = math.log(10000.0) if single else torch.tensor(10000.0).log().to(positions.device)
        return single_sinusoids(positions, width, log).unsqueeze(0)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``sinusoidal``."""
    return {"sinusoidal": Sinusoidal}


def _most_rows(setting: Setting) -> int:
    """Return the most sentences that a batch can have."""
    train, evaluate = setting.config.train, setting.config.evaluate
    return max(train.batch_size or train.batch_tokens, evaluate.batch_size)


def _side_by_side(angles: Tensor, width: int) -> Tensor:
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]
