"""``h2h import``: a checkpoint that a notebook saved becomes a run directory."""

from __future__ import annotations

from pathlib import Path

import click

from headtohead.cli.options import plugin_option, runs_option


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--recipe", required=True, help="Whose classes saved it, for example tatoeba-en-es.")
@click.option("--name", required=True, metavar="RUN", help="Name of the run directory.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sentence pairs that the notebook read, for its vocabularies.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override what neither the checkpoint nor the recipe tells, for example model.heads=2.",
)
@click.option("--force", is_flag=True, help="Replace a run of that name.")
@runs_option
@plugin_option
def command(
    file: Path,
    recipe: str,
    name: str,
    data: Path | None,
    overrides: tuple[str, ...],
    force: bool,
    runs_root: Path,
    plugin_files: tuple[Path, ...],
) -> None:
    """Read FILE, a state dict that a notebook saved, and write runs/imported/RUN.

    Sizes are read from the tensors. The number of heads that split d_model cannot be: it is the
    recipe's, unless --set model.heads says otherwise. The last line is the path of the run.
    """
    from headtohead import api
    from headtohead.plugins.registry import use_files

    use_files(plugin_files)
    path = api.import_checkpoint(
        file, recipe=recipe, name=name, data=data, overrides=overrides, runs=runs_root, force=force, log=click.echo
    )
    click.echo(path)
