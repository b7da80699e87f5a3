"""``h2h skill``: instructions for coding agents."""

from __future__ import annotations

from importlib.resources import files

import click

from headtohead_judge.output import echo_text


@click.command()
def command() -> None:
    """Print SKILL.md: when to use which command, JSON and exit codes, in the format of agent skills."""
    echo_text(files("headtohead").joinpath("SKILL.md").read_text(encoding="utf-8"))
