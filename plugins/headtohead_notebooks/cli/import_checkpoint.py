"""``h2h import-checkpoint``: write a run directory from a notebook's checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option, runs_option, set_option
from headtohead_judge.output import echo


@click.command("import-checkpoint")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--recipe", required=True, help="Recipe of the notebook, for example tatoeba-en-es.")
@click.option("--name", required=True, metavar="RUN", help="Name of the run directory.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The notebook's file of sentence pairs, from which its vocabularies are built.",
)
@set_option("the recipe", "model.heads=2")
@runs_option
@plugin_option
def command(
    file: Path, recipe: str, name: str, data: Path | None, overrides: tuple[str, ...], runs: Path
) -> None:
    """Import FILE, a state dict saved by a notebook, as the run directory runs/imported/RUN.

    Sizes are derived from the tensors. The number of heads cannot be derived from them: it is the recipe's, or
    the value of --set model.heads. The last line of the output is the path of the run.
    """
    from headtohead_notebooks import import_checkpoint

    load_plugins()
    directory = import_checkpoint(
        file, recipe=recipe, name=name, data=data, overrides=overrides, runs=runs, log=echo
    )
    echo(directory)
