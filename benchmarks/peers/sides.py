"""The sides of the comparison, each with headtohead's initial weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import loops
import ours
import torch
from models import Notebook, TorchTransformer
from sizes import DROPOUT, Size
from torch import nn
from turns import Side, in_turns
from weights import initial_weights


@dataclass(frozen=True)
class Setting:
    """Settings of all sides.

    With ``alike``, the notebook trains on headtohead's batches; otherwise on random pairs.
    """

    size: Size
    file: Path
    steps: int
    seed: int = 1
    alike: bool = True
    dropout: float = DROPOUT
    precision: str = "float32"
    peer_precision: str = "float32"
    threads: int = 1

    def training(self) -> ours.StackTraining:
        return ours.start(self.size, self.file, self.seed, self.precision, self.dropout)


class Sides:
    """Creates the sides."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.training = setting.training()
        self.words = ours.vocabularies(self.training)
        self.weights = initial_weights(self.training)
        self.makers: dict[str, Callable[[], Side]] = {
            "headtohead": self._headtohead,
            "notebook": self._notebook,
            "torch.nn.Transformer": self._torch_transformer,
        }

    def _headtohead(self) -> Side:
        return in_turns(ours.own_step(self.training))

    def _notebook(self) -> Side:
        setting, training = self.setting, self.training
        if setting.alike:
            batches = ours.batches(training)
        else:
            rows = ours.pairs_a_step(training)
            batches = loops.random_batches(ours.pairs(training), rows, 1)
        model = Notebook(setting.size, self.words, setting.dropout)
        model.load(self.weights)
        step = loops.notebook_loop(self._in_precision(model), setting.size.lr, batches)
        return in_turns(step)

    def _torch_transformer(self) -> Side:
        setting = self.setting
        model = TorchTransformer(setting.size, self.words, setting.dropout)
        model.load(self.weights)
        step = loops.good_loop(
            self._in_precision(model),
            setting.size.lr,
            ours.batches(self.training),
            setting.peer_precision,
        )
        return in_turns(step)

    def _in_precision(self, model: nn.Module) -> nn.Module:
        double = self.setting.peer_precision == "float64"
        return model.to(torch.float64 if double else torch.float32).train()
