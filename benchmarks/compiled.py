"""Cost and gain of torch.compile on a CPU: the speed-up, and the number of steps after which it pays.

    python benchmarks/compiled.py [--out FILE] [--size NAME ...] [--cache FOLDER]

Eager and compiled gradients (``training/compiled.py``) of the same batch alternate; the table shows
processor time on one thread. Before that, the script compares the gradients in the same precision.
With ``--cache``, a second run of the script loads the compiled code of the first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from plain import Size
from stacks import batch_spec, stack_training

from headtohead.training.compiled import Compiled
from headtohead.training.loop import StackTraining

SIZES = {
    size.name: size
    for size in (
        Size("notebook 1", 32, 2, 1, 64, 106, 157, 64, 8, 8),
        Size("quickstart", 32, 2, 2, 64, 106, 157, 64, 8, 8),
        Size("128/4/2/512", 128, 4, 2, 512, 8000, 8000, 64, 12, 12),
    )
}
CASES = [
    ("notebook 1", 1, 0.1),
    ("notebook 1", 8, 0.1),
    ("notebook 1", 8, 0.0),
    ("128/4/2/512", 1, 0.1),
    ("128/4/2/512", 1, 0.0),
]
"""Size, members, dropout."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--size", action="append", help="only this size; repeatable")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cache", type=Path, help="cache of compiled code; default: an empty one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str((options.cache or Path(empty)).resolve())
        measure(options)


def measure(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    lines = [
        f"torch {torch.__version__}, one thread, processor time; `python benchmarks/compiled.py`",
        "",
        "| size | members | dropout | ms eager | ms compiled | speed-up | s to compile | "
        "pays after steps | gradients differ by |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, members, rate in CASES:
        if options.size is None or name in options.size:
            lines.append(row(SIZES[name], members, rate, options.rounds))
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


def row(size: Size, members: int, rate: float, rounds: int) -> str:
    fallbacks: list[str] = []
    stack = stack_training(
        size,
        members,
        torch.device("cpu"),
        [{"model": {"dropout": rate}}],
        train={"backend": "compile"},
        on_fall_back=fallbacks.append,
    )
    spec = batch_spec(stack, size)
    stack.model.train()
    assert isinstance(stack.compiled, Compiled)
    backends: list[Callable[[], Any]] = [
        lambda: stack.eager_gradients(spec.rows, spec.shape),
        lambda: stack.gradients(spec.rows, spec.shape),
    ]
    stack.model.dropout_rng.set_step(1)
    before = _processor_seconds()
    backends[1]()
    compiling = _processor_seconds() - before
    assert not fallbacks, fallbacks
    first, second = (_gradients(stack, backend) for backend in backends)
    difference = float((first - second).norm() / first.norm())
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for times, backend in zip(seconds, backends, strict=True):
            began = time.process_time()
            backend()
            times.append(time.process_time() - began)
            _clear_gradients(stack)
    eager, compiled = (statistics.median(times[5:]) for times in seconds)
    gain = eager - compiled
    pays = f"{compiling / gain:,.0f}" if gain > 0 else "never"
    return (
        f"| {size.name} | {members} | {rate:g} | {eager * 1e3:.2f} | {compiled * 1e3:.2f} | "
        f"{eager / compiled:.2f} | {compiling:.0f} | {pays} | {difference:.1g} |"
    )


def _processor_seconds() -> float:
    """Return the processor time of this process and of the compilers that it started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _gradients(stack: StackTraining, backend: Callable[[], Any]) -> torch.Tensor:
    _clear_gradients(stack)
    backend()
    return torch.cat([parameter.grad.flatten() for parameter in stack.parameters if parameter.grad is not None])


def _clear_gradients(stack: StackTraining) -> None:
    for parameter in stack.parameters:
        parameter.grad = None


if __name__ == "__main__":
    main()
