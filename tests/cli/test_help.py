"""The output of `h2h --help`."""

import click
import pytest
from click.testing import CliRunner

from headtohead.cli import main, summaries


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
        without_help = [
            p.opts[0] for p in subcommand.params if isinstance(p, click.Option) and not p.help
        ]
        assert without_help == []


def test_the_version_equals_that_of_the_installation() -> None:
    shown = CliRunner().invoke(main, ["--version"])
    assert shown.output == "h2h, version 0.1.0\n"
