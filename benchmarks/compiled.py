"""What torch.compile costs and gains on a CPU: whether it pays, and from how many steps of a shape.

    python benchmarks/compiled.py [--out docs/internals/tables/compiled.md] [--size NAME ...]

Gradients of one batch, computed and compiled (``training/compiled.py``), in turn, by processor time
on one thread. First they are held to each other, in the precision that is measured.
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
from stacks import Pairs, batch_of

from headtohead.config.resolve import resolve
from headtohead.plugins.registry import current
from headtohead.training.compiled import Compiled
from headtohead.training.loop import StackTraining

SIZES = {
    one.name: one
    for one in (
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
    parser.add_argument("--size", action="append", help="only this size; may be given twice")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"torch {torch.__version__}, one thread, processor time; `python benchmarks/compiled.py`",
        "",
        "| size | members | dropout | ms computed | ms compiled | times as fast | s to compile | "
        "pays from so many steps | gradients differ by |",
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
    config = resolve(
        {
            "model": {
                "d_model": size.d_model,
                "heads": size.heads,
                "layers": size.layers,
                "d_ff": size.d_ff,
                "dropout": rate,
            },
            "train": {"steps": 10**6, "schedule": "constant", "backend": "compile"},
        },
        current(),
    )
    said: list[str] = []
    data: Any = Pairs(size, *batch_of(size))
    stack = StackTraining(config, range(1, members + 1), data, torch.device("cpu"), on_fall_back=said.append)
    rows = torch.arange(size.rows).expand(members, -1)
    cut = stack._batch_spec(rows, size.source_time, size.target_time)
    stack.model.train()
    assert isinstance(stack.compiled, Compiled)
    ways: list[Callable[[], Any]] = [
        lambda: stack.eager_gradients(cut.rows, cut.shape),
        lambda: stack.gradients(cut.rows, cut.shape),
    ]
    stack.model.dropout_rng.set_step(1)
    before = _spent()
    ways[1]()
    compiling = _spent() - before
    assert not said, said
    found = [_gradients(stack, way) for way in ways]
    away = float((found[0] - found[1]).norm() / found[0].norm())
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for spent, way in zip(seconds, ways, strict=True):
            began = time.process_time()
            way()
            spent.append(time.process_time() - began)
            _forget(stack)
    computed, compiled = (statistics.median(spent[5:]) for spent in seconds)
    gain = computed - compiled
    pays = f"{compiling / gain:,.0f}" if gain > 0 else "never"
    return (
        f"| {size.name} | {members} | {rate:g} | {computed * 1e3:.2f} | {compiled * 1e3:.2f} | "
        f"{computed / compiled:.2f} | {compiling:.0f} | {pays} | {away:.1g} |"
    )


def _spent() -> float:
    """Return the processor time of this process and of the compilers that it started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _gradients(stack: StackTraining, way: Callable[[], Any]) -> torch.Tensor:
    _forget(stack)
    way()
    return torch.cat([one.grad.flatten() for one in stack.parameters if one.grad is not None])


def _forget(stack: StackTraining) -> None:
    for one in stack.parameters:
        one.grad = None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        # A cache of its own: what another run compiled would be found there.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        main()
