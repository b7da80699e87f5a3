"""The output of `h2h --help`, and the generated pages of docs/ are current."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headtohead.cli import main, summaries
from reference import PAGES
from reference import main as make_pages

DOCS = Path(__file__).parents[2] / "docs" / "reference"


def test_help_lists_every_command_with_a_description() -> None:
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    listed = " ".join(shown.output.split())
    for name, description in summaries().items():
        assert f"{name} {description}" in listed


@pytest.mark.parametrize("name", summaries())
def test_every_command_and_option_has_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    for subcommand in commands:
        assert (subcommand.help or "none")[0].isupper()
        without_help = [p.opts[0] for p in subcommand.params if isinstance(p, click.Option) and not p.help]
        assert without_help == []


def test_an_unknown_command_is_one_line_with_the_nearest_name() -> None:
    shown = CliRunner().invoke(main, ["rport"])
    assert shown.exit_code == 2
    assert shown.stderr == "h2h: unknown command 'rport'; did you mean 'report'?\n"


def test_the_version_equals_that_of_the_installation() -> None:
    shown = CliRunner().invoke(main, ["--version"])
    assert shown.output == "h2h, version 0.1.0\n"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "invariants.md" else name for name in PAGES]
)
def test_the_generated_page_is_current(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"{DOCS / name} is not current; run make docs"


@pytest.mark.slow
def test_an_outdated_page_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_pages([str(tmp_path)]) == 0
    assert make_pages([str(tmp_path), "--check"]) == 0
    page = tmp_path / "plugins.md"
    page.write_text(page.read_text("utf-8").replace("scratch-en-fr", "scratch-en-de"), encoding="utf-8")
    tables = tmp_path / "experiment-file.md"
    tables.write_text((DOCS / "experiment-file.md").read_text("utf-8").replace("| `d_model` |", "| `width` |"), "utf-8")
    assert make_pages([str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().err == "".join(f"{path} is not current; run make docs\n" for path in (page, tables))
    assert make_pages([str(tmp_path)]) == 0
    assert tables.read_text("utf-8") == (DOCS / "experiment-file.md").read_text("utf-8")
