"""``h2h plugins``: every registered entry and where it comes from, or one with its options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headtohead.cli.options import plugin_option

if TYPE_CHECKING:
    from headtohead.plugins.registry import Registered, Registry


@click.command()
@click.argument("name", required=False)
@plugin_option
def command(name: str | None, plugin_files: tuple[Path, ...]) -> None:
    """List plugins by family, or describe NAME: its options, or the values of a recipe."""
    registry = _load(plugin_files)
    if name is None:
        _print_all(registry)
        return
    for number, found in enumerate(_named(registry, name)):
        if number:
            click.echo()
        _print_one(found)


def _load(plugin_files: tuple[Path, ...]) -> Registry:
    """Load all plugins with the garbage collector at rest: a fifth of the time torch takes."""
    import gc

    from headtohead.plugins.registry import use_files

    gc.disable()
    try:
        return use_files(plugin_files)
    finally:
        gc.enable()


def _print_all(registry: Registry) -> None:
    from headtohead.cli.tables import print_table

    rows = [[found.family, found.name, found.entry.summary(), _origin(found)] for found in registry.all()]
    print_table(["family", "name", "summary", "from"], rows)


def _named(registry: Registry, name: str) -> list[Registered]:
    from headtohead.errors import HeadToHeadError, nearest

    found = [one for one in registry.all() if name in (one.name, f"{one.family}/{one.name}")]
    if not found:
        known = [one.name for one in registry.all()]
        raise HeadToHeadError(f"unknown plugin '{name}'{nearest(name, known)}")
    return found


def _print_one(found: Registered) -> None:
    from headtohead.cli.tables import print_table

    click.echo(f"{found.name} ({found.family})")
    for line in _documentation(found):
        click.echo(f"  {line}".rstrip())
    click.echo(f"from: {_origin(found)}")
    click.echo(f"source sha256: {found.source_sha256}")
    for role, meant in found.entry.role_defaults.items():
        click.echo(f"as a bare name it means '{meant}' in {role}")
    values = list(_values(found))
    rows = list(_options(found))
    if values:
        click.echo()
        print_table(["field", "value"], values)
    elif rows:
        click.echo()
        print_table(["option", "type", "default", "meaning"], rows)
    else:
        click.echo("no options")


def _documentation(found: Registered) -> list[str]:
    """Return the docstring of the file that defines the entry: it states paper and section."""
    import inspect
    import sys

    module = sys.modules.get(found.entry.__module__)
    text = inspect.getdoc(module) or found.entry.summary()
    return text.strip().splitlines()


def _options(found: Registered) -> Iterator[list[str]]:
    from headtohead.config.reference import type_words

    for name, info in found.entry.Options.model_fields.items():
        default = (
            "required" if info.is_required() else json.dumps(info.get_default(call_default_factory=True), default=str)
        )
        yield [name, type_words(info), default, info.description or ""]


def _values(found: Registered) -> Iterator[list[str]]:
    """Yield the fields that a recipe sets."""
    from headtohead.plugins.registry import current

    if found.family == "recipe":
        for name, value in current().recipe(found.name).values().items():
            yield [name, json.dumps(value, ensure_ascii=False)]


def _origin(found: Registered) -> str:
    return f"{found.module} ({found.distribution} {found.version})"
