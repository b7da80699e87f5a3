"""The results as Markdown tables."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence

import ours
import torch
from sides import Setting
from turns import Turned

from headtohead.training.loop import StackTraining


def speed(turns_by_side: Mapping[str, Sequence[Turned]], clock: str, caption: str) -> str:
    """Return the speeds of all sides by a clock; ratios are those of adjacent turns."""
    field = {"wall": "seconds", "processor": "processor"}[clock]
    rates = {
        name: [turn.words / getattr(turn, field) for turn in turns]
        for name, turns in turns_by_side.items()
    }
    own = rates["headtohead"]
    lines = [
        f"{caption}; {clock} time",
        "",
        "| side | target tokens per second (median) | speed-up of headtohead | range over turns |",
        "|---|---:|---:|---:|",
    ]
    for name, side in rates.items():
        ratios = sorted(own_rate / rate for own_rate, rate in zip(own, side, strict=True))
        lines.append(
            f"| {name} | {statistics.median(side):,.0f} | {statistics.median(ratios):.2f} | "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def proof(losses_by_side: Mapping[str, Sequence[float]], caption: str) -> str:
    """Return the losses of the first steps, and the largest difference of each side from headtohead."""
    own = losses_by_side["headtohead"]
    steps = range(1, len(own) + 1)
    lines = [
        caption,
        "",
        f"| side | {' | '.join(f'step {step}' for step in steps)} | largest difference |",
        f"|---|{'---:|' * (len(own) + 1)}",
    ]
    for name, side in losses_by_side.items():
        largest = max(abs(loss - own_loss) for loss, own_loss in zip(side, own, strict=True))
        lines.append(f"| {name} | {' | '.join(f'{loss:.8f}' for loss in side)} | {largest:.1e} |")
    return "\n".join(lines) + "\n"


def data(training: StackTraining) -> str:
    source, target = ours.vocabularies(training)
    return (
        f"{len(training.splits['train']):,} pairs, {source:,} and {target:,} words, "
        f"{ours.pairs_a_step(training)} pairs per step"
    )


def machine(setting: Setting) -> str:
    name = f"{platform.machine()}, {setting.threads} thread{'s' * (setting.threads > 1)}"
    precisions = setting.precision
    if setting.peer_precision != setting.precision:
        precisions += f", the other sides {setting.peer_precision}"
    return f"{name}, torch {torch.__version__}, {precisions}"
