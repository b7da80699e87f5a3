"""``h2h new-plugin``: create a plugin package with a working example and its test."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option
from headtohead.plugins.families import FAMILIES
from headtohead_judge.output import echo

*_first, _last = (family.name for family in FAMILIES.values() if family.template is not None)
FAMILY_NAMES = f"{', '.join(_first)} or {_last}"
"""The families with a package, for a sentence."""

INSTALL = "pip install -e '.[test]'"


@click.command(
    help=f"""Create a package that registers NAME in FAMILY: {FAMILY_NAMES}.

    The package contains a built-in plugin under the name NAME to change into your own idea, a test of every
    invariant, a pyproject.toml, a README, and an experiment that compares the plugin.
    """
)
@click.argument("family")
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of the package, which must not exist yet. Default: NAME.",
)
@plugin_option
def command(family: str, name: str, folder: Path | None) -> None:
    """Write a package and print the commands that follow."""
    from headtohead.plugins.template import write_package

    folder = folder or Path(name)
    load_plugins()
    written = write_package(family, name, folder)
    for path in written:
        echo(f"wrote {path}")
    echo("", "next:", f"  cd {shlex.quote(str(folder))}", f"  {INSTALL}", "  pytest")
