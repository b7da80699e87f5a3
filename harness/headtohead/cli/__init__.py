"""The command line: one command per file, each loaded only when it is called."""

from __future__ import annotations

import importlib
import keyword
import sys
from typing import Any

import click

from headtohead.errors import HeadToHeadError, is_disk_error, nearest

COMMANDS = {
    "run": "Train what an experiment file asks for, and answer its question.",
    "plan": "Show what would run, what is done and what is refused, without running it.",
    "status": "Show the state of every run of an experiment.",
    "report": "Write the report of an experiment.",
    "sync": "Ship to MLflow what is missing there.",
    "rerun": "Train a finished run again in the same way and compare.",
    "check": "Check what variants must keep, and show what the pitfalls of a recipe do.",
    "notebooks": "Compare the five notebooks on one page.",
    "plugins": "List plugins, or describe one.",
    "new-plugin": "Write a package with a plugin of your own.",
    "import": "Read a checkpoint that a notebook saved, as a run.",
    "translate": "Translate sentences with a trained run.",
    "attention": "Show where a trained run looks, for one sentence.",
    "heads": "Mask the heads of finished runs, one at a time.",
    "trace": "Show every step of one forward pass.",
    "data": "Fetch datasets and show what is in them.",
    "ui": "Open MLflow on the project's store.",
    "doctor": "Check the installation, the machine and the stores.",
}
"""Every command with its one-line help; ``h2h --help`` imports none of them."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and whose errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        file = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        module = importlib.import_module(f"headtohead.cli.{file}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise HeadToHeadError(f"unknown command '{args[0]}'{nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadToHeadError as error:
            click.echo(f"h2h: {error}", err=True)
            sys.exit(2)
        except Exception as error:
            if not is_disk_error(error):
                raise
            reason = " ".join(str(error).split())
            click.echo(
                f"h2h: cannot write or read a file ({reason}); free space or correct its "
                "permissions, then type the same command",
                err=True,
            )
            sys.exit(2)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headtohead", prog_name="h2h")
def main() -> None:
    """Run Transformer variants head to head: one question, one file, an answer with an interval."""
