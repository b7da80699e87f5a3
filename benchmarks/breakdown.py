"""Time of a training step on a CPU by kind of work, forward and backward.

    python benchmarks/breakdown.py [--steps 15] [--dropout 0.1] [--precision bfloat16]

The script measures the processor time of every torch operation, to which other processes add
nothing, unlike to the times of torch's profiler. An operation counts for the module that called it,
and in the backward pass for the module whose gradient it computes. Shares are relative to the same
step without measurement; both alternate. An empty operation takes a few microseconds: these are
subtracted from every operation and count as time between operations, which is spent in Python and
in torch's dispatcher. One thread, one batch of a size of stacks.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from stacks import SIZES, machine, stack_step
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from headtohead.model import loss
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.model.layers import StackedEmbedding, StackedLayerNorm, StackedLinear
from headtohead.model.transformer import Transformer
from headtohead.training import loop
from headtohead.training.memory import keep_freed_memory
from headtohead.training.optimise import StackOptimizer

LINEAR, ATTENTION, NORMS = "linear maps", "attention: scores, softmax, values", "layer norms"
DROPOUT, EMBEDDING, LM_HEAD = "dropout", "embeddings", "output projection, loss"
OPTIMIZER, OTHER = "clipping, optimizer", "residuals, activations, masks, the rest"
BETWEEN = "between operations"
KINDS = (LINEAR, ATTENTION, NORMS, DROPOUT, EMBEDDING, LM_HEAD, OPTIMIZER, OTHER)

PARTS: Sequence[tuple[Any, str, str]] = (
    (StackedLinear, "forward", LINEAR),
    (MultiHeadAttention, "_without_weights", ATTENTION),
    (StackedLayerNorm, "forward", NORMS),
    (Dropout, "forward", DROPOUT),
    (DropoutRNG, "set_step", DROPOUT),
    (StackedEmbedding, "forward", EMBEDDING),
    (Transformer, "project", LM_HEAD),
    (loss, "label_positions", LM_HEAD),
    (loss, "loss_gradients", LM_HEAD),
    (loop, "clip_gradients", OPTIMIZER),
    (StackOptimizer, "update", OPTIMIZER),
)
"""Functions that call operations of a kind; the output projection's linear map counts for its kind."""

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")

STACKS = {"notebook 1": (1, 16), "notebook 1 with 5,000 rows": (64,), "quickstart": (1, 16), "128/4/2/512": (1, 4)}
"""Numbers of members by size; of the 5,000 rows of embeddings and output projection, the data use 40."""


@dataclass(frozen=True)
class Breakdown:
    """Seconds of a step: in total, by kind, and of matrix products of all kinds."""

    step: float
    kinds: Mapping[str, float]
    products: float
    operations: int
    flops: float

    @property
    def between(self) -> float:
        """Seconds outside of operations."""
        return self.step - sum(self.kinds.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--sizes", nargs="+", choices=STACKS, default=list(STACKS), metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    breakdowns = {
        f"{name}, {members}": measure(name, members, options.steps, options.dropout, options.precision)
        for name in options.sizes
        for members in STACKS[name]
    }
    print(
        f"{machine(torch.device('cpu'))}; torch {torch.__version__}, 1 thread, {options.precision}, "
        f"dropout {options.dropout}; medians of {options.steps} steps\n"
    )
    print("\n".join(table(breakdowns)))


def measure(name: str, members: int, steps: int, dropout: float, precision: str = "float32") -> Breakdown:
    """Return the breakdown of a stack's training step."""
    with_all_rows = replace(SIZES[0], name="notebook 1 with 5,000 rows", source_words=5000, target_words=5000)
    (size,) = (size for size in (*SIZES, with_all_rows) if size.name == name)
    overrides = {"model": {"dropout": dropout}, "train": {"precision": precision}}
    step = stack_step(size, members, torch.device("cpu"), [overrides])
    for _ in range(3):
        step()
    with FlopCounterMode(display=False) as counter:
        step()
    unmeasured, rounds = [], []
    for _ in range(steps):
        began = time.thread_time()
        step()
        unmeasured.append(time.thread_time() - began)
        operations = Operations()
        with operations.recording_callers(), operations:
            step()
        rounds.append(operations)
    return Breakdown(
        step=statistics.median(unmeasured),
        kinds={kind: statistics.median(operations.of_kind(kind) for operations in rounds) for kind in KINDS},
        products=statistics.median(operations.products for operations in rounds),
        operations=rounds[-1].count,
        flops=counter.get_total_flops(),
    )


class Operations(TorchDispatchMode):
    """Measures every operation below autograd and adds its time to a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: Counter[tuple[str, str]] = Counter()
        self.count = 0
        self.callers: list[str] = []
        self.forward: dict[int, str] = {}
        self.overhead = 0.0
        self.overhead = self.empty_operation()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        began = time.thread_time()
        result = func(*args, **options)
        seconds = max(0.0, time.thread_time() - began - self.overhead)
        self.seconds[self.kind(), func.overloadpacket.__name__] += seconds
        self.count += 1
        return result

    def kind(self) -> str:
        """Return the kind of the current operation."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self.forward.get(node._sequence_nr(), OTHER)
        called = self.callers
        kind = LM_HEAD if LM_HEAD in called else called[-1] if called else OTHER
        # Autograd creates the node of the gradient just before the operation. Later operations
        # without a gradient have the same number, so that the first operation decides.
        self.forward.setdefault(torch.autograd._get_sequence_nr() - 1, kind)
        return kind

    def of_kind(self, kind: str) -> float:
        """Return the seconds of a kind."""
        return sum(seconds for (kind_of_operation, _), seconds in self.seconds.items() if kind_of_operation == kind)

    @property
    def products(self) -> float:
        """Seconds of matrix products of all kinds."""
        return sum(seconds for (_, name), seconds in self.seconds.items() if name in PRODUCTS)

    def empty_operation(self) -> float:
        """Return the seconds of an operation that computes nothing."""
        x, seconds = torch.zeros(1), []
        for _ in range(200):
            began = time.thread_time()
            torch.ops.aten.alias.default(x)
            seconds.append(time.thread_time() - began)
        return statistics.median(seconds)

    @contextmanager
    def recording_callers(self) -> Iterator[None]:
        """Record which function of ``PARTS`` calls an operation."""
        with ExitStack() as patches:
            for owner, name, kind in PARTS:
                patches.enter_context(patch.object(owner, name, self.recording(getattr(owner, name), kind)))
            yield

    def recording(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        """Return the function with its kind on the list of callers during a call."""

        @wraps(function)
        def recorded(*arguments: Any, **options: Any) -> Any:
            self.callers.append(kind)
            try:
                return function(*arguments, **options)
            finally:
                self.callers.pop()

        return recorded


def table(by_name: Mapping[str, Breakdown]) -> Iterator[str]:
    """Return the shares as lines of a Markdown table."""
    breakdowns = by_name.values()
    yield "| share of a step, % | " + " | ".join(by_name) + " |"
    yield "|---|" + "---:|" * len(by_name)
    for kind in KINDS:
        yield line(kind, [f"{100 * breakdown.kinds[kind] / breakdown.step:.0f}" for breakdown in breakdowns])
    yield line(BETWEEN, [f"{100 * breakdown.between / breakdown.step:.0f}" for breakdown in breakdowns])
    products = [f"{100 * breakdown.products / breakdown.step:.0f}" for breakdown in breakdowns]
    yield line("matrix products among these", products)
    yield line("step, ms", [f"{1000 * breakdown.step:.1f}" for breakdown in breakdowns])
    yield line("operations", [f"{breakdown.operations:,}" for breakdown in breakdowns])
    rates = [f"{breakdown.flops / max(breakdown.products, 1e-9) / 1e9:.0f}" for breakdown in breakdowns]
    yield line("GFLOP/s within matrix products", rates)


def line(name: str, cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
