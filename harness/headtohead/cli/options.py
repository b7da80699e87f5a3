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
