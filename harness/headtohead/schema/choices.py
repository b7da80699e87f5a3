"""The precisions and optimizers of ``train``, which the host implements; plugins cannot add to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PrecisionName = Literal["float32", "tf32", "bfloat16", "float64"]
OptimizerName = Literal["adam", "adamw", "muon"]


@dataclass(frozen=True)
class Precision:
    """How numbers are represented.

    Args:
        weights: Name of torch's type of weights, sums, norms and losses.
        factors: Name of torch's type of the factors of matrix products.
        needs_cuda: Whether only a GPU computes in it.
    """

    weights: str
    factors: str
    needs_cuda: bool = False

    @property
    def number_bytes(self) -> int:
        """Size of a weight, a gradient or an activation."""
        return 8 if self.weights == "float64" else 4


PRECISIONS: dict[PrecisionName, Precision] = {
    "float32": Precision("float32", "float32"),
    "tf32": Precision("float32", "float32", needs_cuda=True),
    "bfloat16": Precision("float32", "bfloat16"),
    "float64": Precision("float64", "float64"),
}
"""The values of ``train.precision``."""


@dataclass(frozen=True)
class Optimizer:
    """How parameters are updated.

    Args:
        decouples_decay: Whether weight decay is subtracted from the weights instead of added to the gradient.
        orthogonalises: Whether the updates of linear maps are orthogonalised.
    """

    decouples_decay: bool = True
    orthogonalises: bool = False


OPTIMIZERS: dict[OptimizerName, Optimizer] = {
    "adam": Optimizer(decouples_decay=False),
    "adamw": Optimizer(),
    "muon": Optimizer(orthogonalises=True),
}
"""The values of ``train.optimizer``."""
