"""``h2h ui``: start an MLflow server on the project's store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from headtohead import children
from headtohead.cli.options import runs_option
from headtohead.cli.output import echo


@click.command()
@runs_option
@click.option("--port", type=int, default=5000, show_default=True, help="Port of the server.")
@click.option("--no-browser", is_flag=True, help="Print the links without opening a browser.")
def command(runs_root: Path, port: int, no_browser: bool) -> None:
    """Start an MLflow server on the project's store; Ctrl-C stops it.

    The server is reachable from this machine only. The command prints a link for every study. If
    MLFLOW_TRACKING_URI is the address of a server, no server is started and the links lead there.
    """
    from headtohead.tracking import environment
    from headtohead.tracking.serving import Server, ended_by_signals, server_of, study_links
    from headtohead.tracking.store import default_uri

    environment.require(str(runs_root))
    uri = default_uri(runs_root)
    links = study_links(uri, server_of(uri, port))
    if uri.startswith("http"):
        _print_links(links, no_browser)
        return
    with ended_by_signals(), Server(uri, port) as server:
        _print_links(links or {"(no study yet)": server.address}, no_browser)
        echo("Ctrl-C stops the server")
        server.wait()


def _print_links(links: dict[str, str], no_browser: bool) -> None:
    for study, link in links.items():
        echo(f"{study}: {link}")
    if links and not no_browser:
        _open(next(iter(links.values())))


def _open(link: str) -> None:
    """Open a link in a browser if one is available; the links are printed in any case."""
    if sys.platform in {"darwin", "win32"}:
        click.launch(link)
    elif any(name in os.environ for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")):
        tool = shutil.which("xdg-open")
        if tool is not None:
            children.start_program(
                [tool, link],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
