"""The launcher and the device that the options of a command name, and the precisions that the device lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.config.validation_errors import parse_options
from headtohead.errors import HeadToHeadError
from headtohead.planning.plan import Plan
from headtohead.plugins.launcher import Launcher
from headtohead.plugins.registry import registered
from headtohead.schema.choices import PRECISIONS


def make_launcher(name: str, values: Mapping[str, Any]) -> Launcher:
    """Return the launcher of that name with validated options.

    Raises:
        HeadToHeadError: If the name or an option is unknown, with a suggestion, a package is missing, or a value is
            invalid.
    """
    entry: type[Launcher] = registered("launcher", name)
    entry.require()
    return entry(parse_options(entry.Options, values, f"launcher '{name}'"))


def find_device(requested: str, launcher: Launcher) -> str:
    """Return the device that trains, ``"cpu"`` or ``"cuda"``; ``auto`` is cuda if the launcher has a GPU.

    Raises:
        HeadToHeadError: If the device is not auto, cpu or cuda, or cuda is requested and the launcher has no GPU.
    """
    if requested not in ("auto", "cpu", "cuda"):
        use = "auto, cpu or cuda, with CUDA_VISIBLE_DEVICES for a single GPU"
        raise HeadToHeadError(f"unknown device '{requested}'; use --device {use}")
    if requested == "cpu":
        return requested
    gpus = launcher.gpus()
    if requested == "cuda" and not gpus:
        raise HeadToHeadError("device 'cuda' is not available here; use --device cpu")
    return "cuda" if gpus else "cpu"


def refuse_precision(planned: Plan, device: str) -> None:
    """Raise for the first variant whose precision the CPU lacks; nothing is checked for ``device`` "cuda".

    With bfloat16, the speed of this processor is measured.

    Raises:
        HeadToHeadError: If a variant has a precision that needs CUDA, such as tf32, or bfloat16 on a processor where it
            is slower than float32.
    """
    from headtohead.model import precision

    if device != "cpu":
        return
    for variant in planned.variants:
        chosen = variant.config.train.precision
        if PRECISIONS[chosen].needs_cuda:
            raise HeadToHeadError(
                f"{variant.slug}: train.precision '{chosen}' requires a CUDA device; use train.precision: float32"
            )
        if chosen == "bfloat16" and precision.bfloat16_speed() < 1:
            raise HeadToHeadError(
                f"{variant.slug}: train.precision 'bfloat16' is slower here: {precision.describe_bfloat16()} on this "
                "processor; use train.precision: float32"
            )
