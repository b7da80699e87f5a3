"""Creation of a launcher from its name and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.planning.plan import Plan
from headtohead.plugins.launcher import Launcher
from headtohead.plugins.registry import current


def make_launcher(name: str, values: Mapping[str, Any]) -> Launcher:
    """Return the launcher of that name with validated options.

    Raises:
        HeadToHeadError: If the name or an option is unknown, with a suggestion, or a value is invalid.
    """
    entry = current().launcher(name)
    unknown = sorted(values.keys() - entry.Options.model_fields.keys())
    if unknown and not entry.Options.model_fields:
        raise HeadToHeadError(f"launcher '{name}' has no options, got '{unknown[0]}'")
    try:
        options = entry.Options(**values)
    except ValidationError as error:
        path, message = format_validation_error(error, entry.Options, values)
        if message.startswith("unknown field"):  # the message quotes the option
            message, path = message.replace("field", "option", 1), ()
        subject = f"launcher '{name}': {dotted(path)}" if path else f"launcher '{name}'"
        raise HeadToHeadError(f"{subject}: {message}") from error
    return entry(options)


def find_device(requested: str, launcher: Launcher) -> str:
    """Return cpu or cuda.

    Raises:
        HeadToHeadError: If the device is not auto, cpu or cuda, or cuda is requested and the launcher has no GPU.
    """
    if requested not in ("auto", "cpu", "cuda"):
        kind, _, number = requested.partition(":")
        use = "auto, cpu or cuda"
        if kind in ("cuda", "gpu"):
            use = f"cuda, with CUDA_VISIBLE_DEVICES={number} for this GPU alone" if number.isdigit() else "cuda"
        raise HeadToHeadError(f"unknown device '{requested}'; use --device {use}")
    if requested == "cpu":
        return requested
    gpus = launcher.gpus()
    if requested == "cuda" and not gpus:
        raise HeadToHeadError("device 'cuda' is not available here; use --device cpu")
    return "cuda" if gpus else "cpu"


def refuse_precision(planned: Plan, device: str) -> None:
    """Refuse bfloat16 on a processor that emulates it, and tf32 without CUDA.

    Raises:
        HeadToHeadError: If a variant has this precision; names the first such variant.
    """
    from headtohead.model import precision

    for variant in planned.variants if device == "cpu" else ():
        chosen = variant.config.train.precision
        if chosen == "tf32":
            raise HeadToHeadError(
                f"{variant.slug}: train.precision 'tf32' requires a CUDA device; use --set train.precision=float32"
            )
        if chosen == "bfloat16" and precision.bfloat16_speed() < 1:
            raise HeadToHeadError(
                f"{variant.slug}: train.precision 'bfloat16' is slower here: {precision.describe_bfloat16()} on this "
                "processor; use --set train.precision=float32"
            )
