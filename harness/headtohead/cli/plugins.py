"""``h2h plugins``: list registered entries, or describe an entry with its options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import load_plugins, plugin_option
from headtohead.cli.output import echo, print_table

if TYPE_CHECKING:
    from headtohead.plugins.registry import Registered, Registry


@click.command()
@click.argument("name", required=False)
@plugin_option
def command(name: str | None) -> None:
    """List plugins by family, or describe NAME with its options or, for a recipe, its values.

    The name of a family, such as positional, lists the plugins of this family.
    """
    import gc

    gc.disable()  # saves a fifth of the import time of torch
    click.get_current_context().call_on_close(gc.enable)
    registry = load_plugins()
    if name is None or name in registry.entries:
        _print_all(registry, name)
        return
    for index, entry in enumerate(_find(registry, name)):
        if index:
            echo()
        _print_entry(entry)


def _print_all(registry: Registry, family: str | None) -> None:
    entries = [entry for entry in registry.all() if family in (None, entry.family)]
    rows = [[entry.family, entry.name, entry.entry.summary(), _origin(entry)] for entry in entries]
    print_table(["family", "name", "summary", "from"], rows)


def _find(registry: Registry, name: str) -> list[Registered]:
    from headtohead.errors import HeadToHeadError, nearest

    matching = [entry for entry in registry.all() if name in (entry.name, f"{entry.family}/{entry.name}")]
    if not matching:
        known = [entry.name for entry in registry.all()]
        raise HeadToHeadError(f"unknown plugin '{name}'{nearest(name, known)}")
    return matching


def _print_entry(entry: Registered) -> None:
    from headtohead.config.reference import option_rows
    from headtohead.plugins.registry import current

    echo(f"{entry.name} ({entry.family})")
    for line in _documentation(entry):
        echo(f"  {line}".rstrip())
    echo(f"from: {_origin(entry)}")
    echo(f"source sha256: {entry.source_sha256}")
    for role, default in entry.entry.role_defaults.items():
        echo(f"default in {role}: '{default}'")
    recipe = current().recipe(entry.name).values() if entry.family == "recipe" else {}
    values = [(name, json.dumps(value, ensure_ascii=False)) for name, value in recipe.items()]
    rows = list(option_rows(entry.entry.Options))
    if values:
        echo()
        print_table(["field", "value"], values)
    elif rows:
        echo()
        print_table(["option", "type", "default", "meaning"], rows)
    else:
        echo("no options")


def _documentation(entry: Registered) -> list[str]:
    """Return the lines of the entry's module docstring, which names paper and section."""
    import inspect
    import sys

    module = sys.modules.get(entry.entry.__module__)
    text = inspect.getdoc(module) or entry.entry.summary()
    return text.strip().splitlines()


def _origin(entry: Registered) -> str:
    return f"{entry.module} ({entry.distribution} {entry.version})"
