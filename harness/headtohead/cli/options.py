"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

experiment_argument: Decorator = click.argument(
    "experiment", type=click.Path(path_type=Path), metavar="EXPERIMENT"
)
set_option: Decorator = click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE",
    help="Override a field of the file's base, for example model.d_model=64.",
)  # fmt: skip
seeds_option: Decorator = click.option(
    "--seeds", type=int, metavar="N", help="Number of replicates, instead of the file's."
)
runs_option: Decorator = click.option(
    "--runs", "runs_root", type=click.Path(path_type=Path),
    default=lambda: Path(os.environ.get("H2H_RUNS", "runs")), show_default="runs",
    help="Folder of run directories.",
)  # fmt: skip
reports_option: Decorator = click.option(
    "--reports", "reports_root", type=click.Path(path_type=Path),
    default=lambda: Path(os.environ.get("H2H_REPORTS", "reports")), show_default="reports",
    help="Folder of reports.",
)  # fmt: skip
plugin_option: Decorator = click.option(
    "--plugin", "plugin_files", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Load a plugin file for this call.",
)  # fmt: skip
launcher_options: Decorator = click.option(
    "--launcher-option", "launcher_options", multiple=True, metavar="NAME=VALUE",
    help="An option of the launcher; h2h plugins NAME lists them.",
)  # fmt: skip


def read_launcher_options(texts: tuple[str, ...], address: str | None) -> dict[str, Any]:
    """Return the launcher's options by name; ``--address X`` is short for the option of that name.

    Raises:
        HeadToHeadError: If one is not NAME=VALUE.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.experiment.yaml_text import parse

    found: dict[str, Any] = {} if address is None else {"address": address}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise HeadToHeadError(
                f"--launcher-option {text}: expected NAME=VALUE, such as partition=gpu"
            )
        found[name.strip()], _ = parse(value, f"--launcher-option {text}")
    return found
