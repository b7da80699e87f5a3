"""What was measured, as Markdown."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Mapping, Sequence

import ours
import torch
from sides import Setting
from turns import Turned

from headtohead.training.loop import StackTraining


def speed(found: Mapping[str, Sequence[Turned]], clock: str, how: str) -> str:
    """Return the rates of all sides by a clock; ratios are of turns beside each other."""
    field = {"wall": "seconds", "processor": "processor"}[clock]
    rates = {name: [one.words / getattr(one, field) for one in turns] for name, turns in found.items()}
    own = rates["headtohead"]
    lines = [
        f"{how}; {clock} time",
        "",
        "| side | target tokens a second (median) | headtohead is faster by | range over turns |",
        "|---|---:|---:|---:|",
    ]
    for name, side in rates.items():
        ratios = sorted(one / other for one, other in zip(own, side, strict=True))
        lines.append(
            f"| {name} | {statistics.median(side):,.0f} | {statistics.median(ratios):.2f} | "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def losses(found: Mapping[str, Sequence[Sequence[float]]], last: int, how: str) -> str:
    """Return each side's mean loss over its last steps, and how far it is from ours."""
    means = {name: [statistics.mean(one[-last:]) for one in seeds] for name, seeds in found.items()}
    own = means["headtohead"]
    lines = [
        f"{how}, {len(own)} seeds",
        "",
        f"| side | mean loss of the last {last} steps | difference from headtohead, by seed |",
        "|---|---:|---:|",
    ]
    for name, side in means.items():
        apart = [one - other for one, other in zip(side, own, strict=True)]
        difference = "" if name == "headtohead" else _with_error(apart, "+")
        lines.append(f"| {name} | {_with_error(side)} | {difference} |")
    return "\n".join(lines) + "\n"


def proof(found: Mapping[str, Sequence[float]], how: str) -> str:
    """Return the losses of the first steps and how far each side is from ours."""
    own = found["headtohead"]
    steps = range(1, len(own) + 1)
    lines = [
        how,
        "",
        f"| side | {' | '.join(f'step {step}' for step in steps)} | largest difference |",
        f"|---|{'---:|' * (len(own) + 1)}",
    ]
    for name, side in found.items():
        largest = max(abs(one - other) for one, other in zip(side, own, strict=True))
        lines.append(f"| {name} | {' | '.join(f'{one:.8f}' for one in side)} | {largest:.1e} |")
    return "\n".join(lines) + "\n"


def data(training: StackTraining) -> str:
    source, target = ours.vocabularies(training)
    return (
        f"{len(training.splits['train']):,} pairs, {source:,} and {target:,} words, "
        f"{ours.pairs_a_step(training)} pairs a step"
    )


def machine(setting: Setting) -> str:
    name = (
        torch.cuda.get_device_name()
        if setting.device.type == "cuda"
        else f"{platform.machine()}, {setting.threads} thread{'s' * (setting.threads > 1)}"
    )
    return f"{name}, torch {torch.__version__}, {setting.precision}"


def _with_error(values: Sequence[float], sign: str = "") -> str:
    """Return a mean ± its standard error, which one value has not."""
    mean = f"{statistics.mean(values):{sign}.4f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values) / math.sqrt(len(values)):.4f}"
