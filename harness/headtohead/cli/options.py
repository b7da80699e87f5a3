"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

experiment_argument: Decorator = click.argument("experiment", type=click.Path(path_type=Path), metavar="EXPERIMENT")
set_option: Decorator = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a field of the file's base, for example model.d_model=64.",
)
seeds_option: Decorator = click.option(
    "--seeds", type=int, metavar="N", help="Number of replicates, instead of the file's."
)
name_option: Decorator = click.option(
    "--name", "label", metavar="LABEL", help="Add LABEL to the experiment's name: its runs and report are kept apart."
)
max_runs_option: Decorator = click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Refuse an experiment with more runs.",
)


def _runs_root(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path:
    """Return the runs folder of the experiment that the command is called with."""
    from headtohead.config.project import runs_folder

    # Without --runs this is called after the arguments have been read.
    named = context.params.get("experiment") or context.params.get("target")
    return runs_folder(named or next(iter(context.params.get("experiments", ())), None), given)


runs_option: Decorator = click.option(
    "--runs",
    "runs_root",
    type=click.Path(path_type=Path),
    callback=_runs_root,
    show_default="runs in the project root",
    help="Folder of run directories.",
)
reports_option: Decorator = click.option(
    "--reports",
    "reports_root",
    type=click.Path(path_type=Path),
    show_default="reports beside the runs folder",
    help="Folder of reports.",
)
plugin_option: Decorator = click.option(
    "--plugin",
    "plugin_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Load a plugin file for this call.",
)
launcher_options: Decorator = click.option(
    "--launcher-option",
    "launcher_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the launcher; h2h plugins NAME lists them.",
)


def read_launcher_options(texts: tuple[str, ...], address: str | None) -> dict[str, Any]:
    """Return the launcher's options by name; ``--address X`` is short for the option of that name.

    Raises:
        HeadToHeadError: If one is not NAME=VALUE.
    """
    from headtohead.config.yaml_text import parse
    from headtohead.errors import HeadToHeadError

    found: dict[str, Any] = {} if address is None else {"address": address}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise HeadToHeadError(f"--launcher-option {text}: expected NAME=VALUE, such as partition=gpu")
        found[name.strip()], _ = parse(value, f"--launcher-option {text}")
    return found
