"""Where the time of a training step goes on a CPU, by kind of work, forward and backward.

    python benchmarks/breakdown.py [--steps 15] [--dropout 0.1]

Every operation that torch computes is timed by itself, in processor time, which others on the
machine do not add to as they do to torch's own profiler. It belongs to the part of the program that
called it; one of the backward pass, to the part whose gradient it computes. Shares are of the same
step with nothing timed, taken in turn. An operation that does nothing takes a few microseconds
too: these are taken off each, and left to what is spent between operations, in Python and on
torch's ways from there to an operation. One thread, one batch of stacks.py's size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from stacks import SIZES, batch_of, machine, stack_step
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.model.layers import StackedEmbedding, StackedLayerNorm, StackedLinear
from headtohead.model.transformer import Transformer
from headtohead.training import loop
from headtohead.training.memory import keep_freed_memory
from headtohead.training.optimise import StackOptimizer

LINEAR, ATTENTION, NORMS = "linear maps", "attention: scores, softmax, values", "layer norms"
DROPOUT, EMBEDDING, WORDS = "dropout", "embeddings", "projection to words, loss"
OPTIMIZER, OTHER = "clipping, optimizer", "residuals, activations, masks, the rest"
BETWEEN = "between operations"
KINDS = (LINEAR, ATTENTION, NORMS, DROPOUT, EMBEDDING, WORDS, OPTIMIZER, OTHER)

PARTS: Sequence[tuple[Any, str, str]] = (
    (StackedLinear, "forward", LINEAR),
    (MultiHeadAttention, "_without_weights", ATTENTION),
    (StackedLayerNorm, "forward", NORMS),
    (Dropout, "forward", DROPOUT),
    (DropoutRNG, "begin", DROPOUT),
    (StackedEmbedding, "forward", EMBEDDING),
    (Transformer, "project", WORDS),
    (loop, "label_positions", WORDS),
    (loop, "token_losses", WORDS),
    (loop, "clip_gradients", OPTIMIZER),
    (StackOptimizer, "update", OPTIMIZER),
)
"""What calls operations of a kind; the linear map to words is part of those."""

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")

STACKS = {"notebook 1": (1, 16), "quickstart": (1, 16), "128/4/2/512": (1, 4)}
"""Members by size."""


@dataclass(frozen=True)
class Breakdown:
    """Seconds of a step: all of it, by kind, and of matrix products of any kind."""

    step: float
    kinds: Mapping[str, float]
    products: float
    operations: int
    flops: float

    @property
    def between(self) -> float:
        """What no operation took."""
        return self.step - sum(self.kinds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--sizes", nargs="+", choices=STACKS, default=list(STACKS), metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    found = {
        f"{name}, {members}": measured(name, members, options.steps, options.dropout)
        for name in options.sizes
        for members in STACKS[name]
    }
    print(
        f"{machine(torch.device('cpu'))}; torch {torch.__version__}, 1 thread, float32, dropout "
        f"{options.dropout}; medians of {options.steps} steps\n"
    )
    print("\n".join(table(found)))


def measured(name: str, members: int, steps: int, dropout: float) -> Breakdown:
    """Take a stack's step to pieces."""
    (size,) = (one for one in SIZES if one.name == name)
    model = {"d_model": size.d_model, "heads": size.heads, "layers": size.layers, "d_ff": size.d_ff, "dropout": dropout}
    step = stack_step(size, members, *batch_of(size), torch.device("cpu"), [{"model": model}])
    for _ in range(3):
        step()
    with FlopCounterMode(display=False) as counter:
        step()
    bare, found = [], []
    for _ in range(steps):
        began = time.thread_time()
        step()
        bare.append(time.thread_time() - began)
        operations = Operations()
        with operations.named(), operations:
            step()
        found.append(operations)
    return Breakdown(
        step=statistics.median(bare),
        kinds={kind: statistics.median(one.of_kind(kind) for one in found) for kind in KINDS},
        products=statistics.median(one.products for one in found),
        operations=found[-1].count,
        flops=counter.get_total_flops(),
    )


class Operations(TorchDispatchMode):
    """Times every operation below autograd, and adds it to the kind it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: Counter[tuple[str, str]] = Counter()
        self.count = 0
        self.callers: list[str] = []
        self.forward: dict[int, str] = {}
        self.nothing = 0.0
        self.nothing = self.of_nothing()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        began = time.thread_time()
        result = func(*args, **options)
        seconds = max(0.0, time.thread_time() - began - self.nothing)
        self.seconds[self.kind(), func.overloadpacket.__name__] += seconds
        self.count += 1
        return result

    def kind(self) -> str:
        """Return what the operation under way belongs to."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self.forward.get(node._sequence_nr(), OTHER)
        called = self.callers
        kind = WORDS if WORDS in called else called[-1] if called else OTHER
        # The node that computes its gradient was made just before the operation itself.
        # Operations without a gradient that follow find the same one, and leave it alone.
        self.forward.setdefault(torch.autograd._get_sequence_nr() - 1, kind)
        return kind

    def of_kind(self, kind: str) -> float:
        """Return the seconds of one kind."""
        return sum(seconds for (own, _), seconds in self.seconds.items() if own == kind)

    @property
    def products(self) -> float:
        """Seconds of matrix products of all kinds."""
        return sum(seconds for (_, name), seconds in self.seconds.items() if name in PRODUCTS)

    def of_nothing(self) -> float:
        """Return the seconds that an operation takes that does nothing."""
        x, found = torch.zeros(1), []
        for _ in range(200):
            began = time.thread_time()
            torch.ops.aten.alias.default(x)
            found.append(time.thread_time() - began)
        return statistics.median(found)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let the parts of the program say that it is they who call."""
        with ExitStack() as patches:
            for place, name, kind in PARTS:
                own = self.naming(getattr(place, name), kind)
                patches.enter_context(patch.object(place, name, own))
            yield

    def naming(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        """Return the function, that says its kind while it is called."""

        @wraps(function)
        def named(*arguments: Any, **options: Any) -> Any:
            self.callers.append(kind)
            try:
                return function(*arguments, **options)
            finally:
                self.callers.pop()

        return named


def table(found: Mapping[str, Breakdown]) -> Iterator[str]:
    """Write the shares as Markdown."""
    every = found.values()
    yield "| share of a step, % | " + " | ".join(found) + " |"
    yield "|---|" + "---:|" * len(found)
    for kind in KINDS:
        yield line(kind, [f"{100 * one.kinds[kind] / one.step:.0f}" for one in every])
    yield line(BETWEEN, [f"{100 * one.between / one.step:.0f}" for one in every])
    products = [f"{100 * one.products / one.step:.0f}" for one in every]
    yield line("matrix products among these", products)
    yield line("step, ms", [f"{1000 * one.step:.1f}" for one in every])
    yield line("operations", [f"{one.operations:,}" for one in every])
    rates = [f"{one.flops / max(one.products, 1e-9) / 1e9:.0f}" for one in every]
    yield line("GFLOP/s within matrix products", rates)


def line(name: str, cells: Sequence[str]) -> str:
    """Write a row of a table."""
    return f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
