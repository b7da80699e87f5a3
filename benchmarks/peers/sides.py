"""Every side of the comparison, each from the weights that headtohead drew."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import hugging
import loops
import ours
import torch
from joey import JoeyNMT
from models import Notebook, TorchTransformer
from sizes import DROPOUT, Size
from torch import nn
from turns import Side, in_turns
from weights import drawn
from xtransformer import XTransformer

NAMES = ("headtohead", "notebook", "torch.nn.Transformer", "x-transformers", "transformers", "JoeyNMT")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Setting:
    """What all sides share.

    ``alike`` gives notebook and transformers headtohead's batches too, which otherwise make their
    own: pairs as they come, and pairs of like lengths.
    """

    size: Size
    file: Path
    steps: int
    seed: int = 1
    alike: bool = True
    dropout: float = DROPOUT
    precision: str = "float32"
    device: torch.device = CPU
    threads: int = 1
    joeynmt: Path | None = None

    def training(self) -> ours.StackTraining:
        return ours.start(self.size, self.file, self.seed, self.device, self.precision, self.dropout)


class Sides:
    """Makes sides one by one; ``stack`` closes those that have a process."""

    def __init__(self, setting: Setting, stack: ExitStack) -> None:
        self.setting, self.stack = setting, stack
        self.training = setting.training()
        self.words = ours.vocabularies(self.training)
        self.weights = drawn(self.training)
        self.makers: dict[str, Callable[[], Side]] = {
            "headtohead": self._headtohead,
            "notebook": self._notebook,
            "torch.nn.Transformer": lambda: self._good(TorchTransformer),
            "x-transformers": lambda: self._good(XTransformer),
            "transformers": self._transformers,
            "JoeyNMT": self._joeynmt,
        }

    def make(self, names: tuple[str, ...]) -> Iterator[tuple[str, Side]]:
        """Yield the sides that can be made; those whose package is missing are named."""
        for name in names:
            try:
                yield name, self.makers[name]()
            except ImportError as error:
                print(f"{name} is left out: {error}", flush=True)

    def _headtohead(self) -> Side:
        return in_turns(ours.own_step(self.training), self.setting.device)

    def _notebook(self) -> Side:
        setting, training = self.setting, self.training
        if setting.alike:
            batches = ours.batches(training)
        else:
            rows = ours.pairs_a_step(training)
            batches = loops.random_batches(ours.pairs(training), rows, 1, setting.device)
        model = Notebook(setting.size, self.words, setting.dropout)
        model.load(self.weights)
        step = loops.notebook_loop(self._placed(model), setting.size.lr, batches)
        return in_turns(step, setting.device)

    def _good(self, kind: type[TorchTransformer] | type[XTransformer]) -> Side:
        setting = self.setting
        model = kind(setting.size, self.words, setting.dropout)
        model.load(self.weights)
        step = loops.good_loop(
            self._placed(model), setting.size.lr, ours.batches(self.training), setting.device, setting.precision
        )
        return in_turns(step, setting.device)

    def _transformers(self) -> Side:
        setting, training = self.setting, self.training
        if setting.alike:
            told = hugging.of_batches(itertools.islice(ours.batches(training), setting.steps + 1))
        else:
            told = hugging.of_pairs(ours.pairs(training), ours.pairs_a_step(training))
        model = self._placed(hugging.marian(setting.size, self.words, self.weights, setting.dropout))
        step = hugging.StepByStep(model, setting.size.lr, setting.device, setting.precision, **told)
        return in_turns(step, setting.device)

    def _joeynmt(self) -> Side:
        setting = self.setting
        if setting.joeynmt is None:
            raise ImportError("--joeynmt names the Python of an environment that has it")
        if setting.device.type != "cpu":
            raise ImportError("its process is written for the CPU")
        batches = list(itertools.islice(ours.batches(self.training), setting.steps))
        side = JoeyNMT(
            setting.joeynmt,
            setting.size,
            self.words,
            self.weights,
            batches,
            setting.precision,
            setting.dropout,
            setting.threads,
        )
        self.stack.callback(side.close)
        return side

    def _placed(self, model: nn.Module) -> nn.Module:
        double = self.setting.precision == "float64"
        return model.to(self.setting.device, torch.float64 if double else torch.float32).train()
