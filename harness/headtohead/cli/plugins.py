"""``h2h plugins``: list registered entries, or describe an entry with its options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import load_plugins, plugin_option
from headtohead_judge.output import echo, print_table

if TYPE_CHECKING:
    from headtohead.plugins.registry import Registered


@click.command()
@click.argument("name", required=False)
@plugin_option
def command(name: str | None) -> None:
    """List plugins by family, or describe NAME with its options or, for a recipe, its values.

    The name of a family, such as positional, lists the plugins of this family.
    """
    import gc

    from headtohead.errors import HeadToHeadError, nearest

    gc.disable()  # saves a fifth of the import time of torch
    click.get_current_context().call_on_close(gc.enable)
    registry = load_plugins()
    if name is None or name in registry.entries:
        entries = [entry for entry in registry.all() if name in (None, entry.family)]
        rows = [
            [entry.family, entry.name, entry.entry.summary(), _origin(entry)] for entry in entries
        ]
        print_table(["family", "name", "summary", "from"], rows)
        return
    matching = [
        entry for entry in registry.all() if name in (entry.name, f"{entry.family}/{entry.name}")
    ]
    if not matching:
        names = [*registry.entries, *(entry.name for entry in registry.all())]
        raise HeadToHeadError(f"unknown plugin '{name}'{nearest(name, names)}")
    for index, entry in enumerate(matching):
        if index:
            echo()
        _print_entry(entry)


def _print_entry(entry: Registered) -> None:
    import inspect
    import sys

    from headtohead.config.reference import option_rows
    from headtohead.plugins.registry import find_recipe
    from headtohead.storage.record import leaves

    # The docstring of the module names paper and section.
    text = inspect.getdoc(sys.modules.get(entry.entry.__module__)) or entry.entry.summary()
    echo(f"{entry.name} ({entry.family})")
    for line in text.strip().splitlines():
        echo(f"  {line}".rstrip())
    echo(f"from: {_origin(entry)}")
    echo(f"source sha256: {entry.source_sha256}")
    for role, default in entry.entry.role_defaults.items():
        echo(f"default in {role}: '{default}'")
    columns, rows = (
        ["option", "type", "default", "meaning"],
        [[*row] for row in option_rows(entry.entry.Options)],
    )
    if entry.family == "recipe":
        recipe = leaves(find_recipe(entry.name).config)
        columns, rows = (
            ["field", "value"],
            [[name, json.dumps(x, ensure_ascii=False)] for name, x in recipe],
        )
    if rows:
        echo()
        print_table(columns, rows)
    else:
        echo("no options")


def _origin(entry: Registered) -> str:
    return f"{entry.module} ({entry.distribution} {entry.version})"
