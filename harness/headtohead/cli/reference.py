"""Generate two pages of ``docs/reference``: commands and built-in plugins.

``python -m headtohead.cli.reference docs/reference`` writes them; ``--check`` exits with 1 if they
are not current. ``headtohead.config.reference`` generates the tables of the experiment file.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

WIDTH = 92
"""Columns of the help texts on the page."""


def cli_page() -> str:
    """Return the page of commands: the help of each, as the command line prints it."""
    from headtohead.cli import COMMANDS, main

    lines = [
        "# Commands",
        "",
        "Made from the program by `make docs`. Exit codes: 0 done, 1 a run failed or something is "
        "missing, 2 bad input. `H2H_RUNS`, `H2H_REPORTS` and `H2H_CACHE` in the environment name "
        "the folders of runs, reports and data where no option does; `MLFLOW_TRACKING_URI` names "
        "the MLflow store, and `H2H_SHIPPING_SECONDS` how long `h2h run` goes on shipping to it "
        "after the answer (60).",
        "",
        *_help(main, None),
    ]
    for name in COMMANDS:
        context = click.Context(main, info_name="h2h")
        command = main.get_command(context, name)
        assert command is not None
        lines += [f"## h2h {name}", "", *_help(command, context, name)]
    return "\n".join(lines).rstrip() + "\n"


def _help(command: click.Command, parent: click.Context | None, name: str = "h2h") -> Iterator[str]:
    context = click.Context(
        command,
        parent=parent,
        info_name=name,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    yield from ("```text", *command.get_help(context).splitlines(), "```", "")
    if isinstance(command, click.Group) and parent is not None:
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from (f"### h2h {name} {inner}", "")
            yield from _help(found, context, inner)


def plugins_page() -> str:
    """Return the page of built-in plugins: what each is, where it is published, its options."""
    from headtohead.plugins.registry import FAMILIES, load_registry

    entries = [one for one in load_registry().all() if one.distribution == "headtohead"]
    lines = [
        "# Built-in plugins",
        "",
        "Made from the program by `make docs`; `h2h plugins` lists those of an installation, "
        "outsiders included, and `h2h plugins NAME` describes one. How to write one: "
        "[your own plugin](../how-to/own-plugin.md).",
        "",
    ]
    for family in FAMILIES:
        members = [one for one in entries if one.family == family]
        if not members:
            continue
        lines += [f"## {family}", "", "| name | what it is |", "|---|---|"]
        for one in members:
            anchor = f"{family}{one.name}"
            lines.append(f"| [`{one.name}`](#{anchor}) | {_markdown(one.entry.summary())} |")
        for one in members:
            lines += [
                "",
                f"### {family}/{one.name}",
                "",
                *_description(one.entry),
                *(_values(one.name) if family == "recipe" else _options(one.entry)),
            ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _description(entry: type) -> Iterator[str]:
    """Yield the docstring of the file that defines an entry: it names paper and section."""
    text = inspect.getdoc(sys.modules[entry.__module__]) or inspect.getdoc(entry) or ""
    yield from _markdown(text).splitlines()
    yield ""


def _options(entry: type) -> Iterator[str]:
    from headtohead.config.reference import type_words

    fields = entry.Options.model_fields  # type: ignore[attr-defined]
    if not fields:
        yield "No options."
        return
    yield from ("| option | type | default | meaning |", "|---|---|---|---|")
    for name, info in fields.items():
        value = info.get_default(call_default_factory=True)
        default = "required" if info.is_required() else f"`{json.dumps(value, default=str)}`"
        cells = [type_words(info), default, info.description or ""]
        yield f"| `{name}` | {' | '.join(_escaped(cell) for cell in cells)} |"


def _values(recipe: str) -> Iterator[str]:
    from headtohead.plugins.registry import current

    yield from ("| field | value |", "|---|---|")
    for name, value in current().recipe(recipe).values().items():
        yield f"| `{name}` | `{json.dumps(value, ensure_ascii=False)}` |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _markdown(text: str) -> str:
    return text.replace("``", "`")


PAGES: dict[str, Callable[[], str]] = {"cli.md": cli_page, "plugins.md": plugins_page}


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages; 1 if one is not current."""
    folder = Path(next((one for one in arguments if one != "--check"), "docs/reference"))
    stale = 0
    for name, make in PAGES.items():
        path, made = folder / name, make()
        if "--check" not in arguments:
            path.write_text(made, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != made:
            print(f"{path} is not current; type make docs", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
