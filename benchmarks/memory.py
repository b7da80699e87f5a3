"""Estimated and measured memory of stacks on a CPU.

    python benchmarks/memory.py [STUDY ...]

Each study trains a stack for a few steps and scores it, in a process of its own. Measured is the peak of the resident
memory in MiB above that before the model is built. The estimate is that by which the planner decides how many members
fit into memory (`planning.stacking.stack_bytes`). The script exits with 1 if a peak is not 0.7 to 1.0 times its
estimate. Linux only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from headtohead import api
from headtohead.planning.plan import Plan
from headtohead.planning.stacking import stack_bytes
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory
from headtohead.training.results import score_splits

LOWEST = 0.7
HIGHEST = 1.0
STEPS = 4
TEXT_BYTES = 400_000

GRAMMAR = {"dataset": "toy-grammar", "size": 2000}
TEXT = {"dataset": "text", "file": "text.txt"}


def size(width: int, heads: int, layers: int, **fields: Any) -> dict[str, Any]:
    """Return the section ``model`` of these sizes, with feed-forward networks four times as wide."""
    return {"d_model": width, "heads": heads, "layers": layers, "d_ff": 4 * width, **fields}


def decoder(width: int, heads: int, layers: int, **fields: Any) -> dict[str, Any]:
    """Return the section ``model`` of a decoder-only model."""
    return size(width, heads, layers, architecture="decoder-only", **fields)


def pairs(model: dict[str, Any], tokens: int, **entries: Any) -> dict[str, Any]:
    """Return the configuration of a model for sentence pairs, with batches of this many tokens."""
    train = {"steps": STEPS, "batch_tokens": tokens}
    return {"data": GRAMMAR, "model": model, "train": train, **entries}


def text(model: dict[str, Any], tokens: int, block: int, **entries: Any) -> dict[str, Any]:
    """Return the configuration of a language model, with batches of blocks of a text."""
    train = {"steps": STEPS, "batch_tokens": tokens}
    return {"data": {**TEXT, "block": block}, "model": model, "train": train, **entries}


STUDIES: dict[str, tuple[int, dict[str, Any]]] = {
    "pairs 64/4/2": (16, pairs(size(64, 4, 2), 2048)),
    "pairs 128/4/2": (8, pairs(size(128, 4, 2), 2048)),
    "pairs 256/8/3": (2, pairs(size(256, 8, 3), 2048)),
    "pairs, dropout": (4, pairs(size(128, 4, 2, dropout=0.1), 2048)),
    "pairs, relative bias": (4, pairs(size(128, 4, 2), 2048, positional="t5-relative")),
    "pairs, swiglu": (4, pairs(size(128, 4, 2), 2048, feed_forward="swiglu")),
    "text 128/4/4, blocks of 64": (4, text(decoder(128, 4, 4), 2048, 64)),
    "text 128/4/4, blocks of 256": (4, text(decoder(128, 4, 4), 2048, 256)),
    "text 384/6/6, blocks of 256": (1, text(decoder(384, 6, 6), 2048, 256)),
    "text, dropout": (2, text(decoder(128, 4, 4, dropout=0.1), 2048, 128)),
    "text, dropout of attention": (
        2,
        text(decoder(128, 4, 4, dropout_attention=0.1), 2048, 256),
    ),
    "text, alibi": (2, text(decoder(128, 4, 4), 2048, 256, positional="alibi")),
    "text, float64": (2, text(decoder(128, 4, 4), 2048, 64)),
    "text 512/8/2, few tokens": (1, text(decoder(512, 8, 2), 128, 64)),
}
"""The number of members and the configuration of each study."""

STUDIES["text, float64"][1]["train"]["precision"] = "float64"


def main(words: list[str] | None = None) -> None:
    """Print a line per study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", default=[*STUDIES])
    options = parser.parse_args(words)
    keep_freed_memory()
    torch.set_num_threads(1)
    missed = []
    print("| study | members | estimate, MiB | peak, MiB | peak / estimate |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["H2H_CACHE"] = str(Path(folder) / "cache")
        Path("text.txt").write_text(invented_text(), encoding="utf-8")
        for name in options.studies:
            members, base = STUDIES[name]
            plan = plan_of(base, members)
            estimate = stack_bytes(plan, plan.runs[0], members, "cpu") / 2**20
            peak = peak_bytes(plan) / 2**20
            ratio = peak / estimate
            if not LOWEST <= ratio <= HIGHEST:
                missed.append(name)
            cells = f"{members} | {estimate:.0f} | {peak:.0f} | {ratio:.2f}"
            print(f"| {name} | {cells} |", flush=True)
    if missed:
        sys.exit(f"not {LOWEST} to {HIGHEST}: {', '.join(missed)}")


def invented_text() -> str:
    """Return a text of random words."""
    generator = torch.Generator().manual_seed(0)
    letters = torch.randint(26, (TEXT_BYTES,), generator=generator) + ord("a")
    spaces = torch.rand(TEXT_BYTES, generator=generator) < 0.2
    return bytes(letters.where(~spaces, torch.tensor(ord(" "))).tolist()).decode()


def plan_of(base: dict[str, Any], members: int) -> Plan:
    """Return the plan of a study of one variant, with a seed per member."""
    experiment = {
        "question": "How much memory does a stack need?",
        "base": base,
        "baseline": {},
        "seeds": members,
    }
    return api.plan(experiment, name="memory")


def peak_bytes(plan: Plan) -> int:
    """Return the peak of the memory of a process that trains and scores the runs of a plan, above its start."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        before = status_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        train(plan)
        os.write(writer, str(status_bytes("VmHWM") - before).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return int(answer)


def status_bytes(name: str) -> int:
    """Return a field of ``/proc/self/status`` in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


def train(plan: Plan) -> None:
    """Train and score the runs of a plan in one stack."""
    run = plan.runs[0]
    config = plan.variant_of(run).config
    data = plan.data_of(run)
    seeds = [member.seed for member in plan.runs]
    training = StackTraining(config, seeds, data, torch.device("cpu"))
    training.run()
    score_splits(training, data, plan.variant_of(run).record.decoding_limit)


if __name__ == "__main__":
    main()
