"""Arguments and options shared by several commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headtohead.plugins.registry import Registry

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def set_option(of: str = "the file's base", example: str = "model.d_model=64") -> Decorator:
    """Return the option ``--set``; ``example`` is a PATH=VALUE for its help and its error."""

    def check(
        context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the overrides; one without a value is named before the arguments, among which its value may be."""
        for text in texts:
            from headtohead.config.yaml_text import parse_assignment

            parse_assignment(text, "--set", f"path=value, such as {example}")
        return texts

    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="PATH=VALUE",
        callback=check,
        help=f"Override a field of {of}, for example {example}.",
    )


def _runs(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path:
    """Return the runs folder of the command's experiment."""
    from headtohead.config.project import runs_folder

    if value is not None and not value.is_dir():
        is_needed = context.info_name in {"clean", "list", "ui"}
        if is_needed or value.exists():
            raise click.BadParameter(f"'{value}' is not a folder")
    # click calls this after it has parsed the arguments, unless --runs precedes them.
    experiments = context.params.get("experiments")
    target = context.params.get("experiment") or context.params.get("target")
    if not target and experiments:
        target = experiments[0]
    return runs_folder(target or None, value)


def load_plugins() -> Registry:
    """Return the registry of this process with the plugin files of ``--plugin``."""
    from headtohead.plugins.registry import use_files  # imports torch

    return use_files(click.get_current_context().meta["plugin_files"])


experiment_argument: Decorator = click.argument(
    "experiment", type=click.Path(path_type=Path), metavar="EXPERIMENT"
)
run_argument: Decorator = click.argument("run")
max_runs_option: Decorator = click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Maximum number of runs.",
)
seeds_option: Decorator = click.option(
    "--seeds", type=int, metavar="N", help="Number of seeds; overrides the file."
)
name_option: Decorator = click.option(
    "--name",
    metavar="LABEL",
    help="Append LABEL to the experiment's name, for separate runs and a separate report.",
)
runs_option: Decorator = click.option(
    "--runs",
    type=click.Path(path_type=Path),
    show_default="runs in the project root",
    callback=_runs,
    help="Folder of run directories.",
)
reports_option: Decorator = click.option(
    "--reports",
    type=click.Path(path_type=Path),
    show_default="reports beside the runs folder",
    help="Folder of reports.",
)
plugin_option: Decorator = click.option(
    "--plugin",
    multiple=True,
    expose_value=False,
    callback=lambda context, _, files: context.meta.update(plugin_files=files),
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Load a plugin file, or all plugin files of a folder.",
)


class FiniteRange(click.FloatRange):
    """A range of numbers without inf and nan, which click accepts."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def logger_option(purpose: str) -> Decorator:
    """Return the option ``--logger``, passed to the command as ``loggers``; its help begins with ``purpose``."""
    help_text = f"{purpose}: tensorboard, trackio, wandb, or a plugin's. Repeatable."
    return click.option("--logger", "loggers", multiple=True, metavar="NAME", help=help_text)


def format_option(description: str, *formats: str) -> Decorator:
    """Return the option ``--format`` with the default ``text``, passed to the command as ``form``."""
    choices = click.Choice(["text", *formats])
    return click.option(
        "--format", "form", type=choices, default="text", show_default=True, help=description
    )


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument EXPERIMENT and the options that select its runs: --set, --seeds, --name, --max-runs, --runs."""
    for option in (
        runs_option,
        max_runs_option,
        name_option,
        seeds_option,
        set_option(),
        experiment_argument,
    ):
        command = option(command)
    return command
