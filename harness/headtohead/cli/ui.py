"""``h2h ui``: open MLflow on the project's store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from headtohead.cli.options import runs_option


@click.command()
@runs_option
@click.option("--port", type=int, default=5000, show_default=True, help="Port on this machine.")
@click.option("--no-browser", is_flag=True, help="Only print the links.")
def command(runs_root: Path, port: int, no_browser: bool) -> None:
    """Open MLflow on the project's store, for this machine only; Ctrl-C ends it.

    Prints the link of every study's view. With MLFLOW_TRACKING_URI set to a server, nothing is
    started: the links lead to that server.
    """
    from headtohead.tracking import environment
    from headtohead.tracking.serving import Server, ended_by_signals, server_of, study_links
    from headtohead.tracking.store import default_uri

    environment.require(str(runs_root))
    uri = default_uri(runs_root)
    links = study_links(uri, server_of(uri, port))
    if uri.startswith("http"):
        _tell(links, no_browser)
        return
    with ended_by_signals(), Server(uri, port) as server:
        _tell(links or {"(no study yet)": server.address}, no_browser)
        click.echo("Ctrl-C ends it")
        server.wait()


def _tell(links: dict[str, str], no_browser: bool) -> None:
    for study, link in links.items():
        click.echo(f"{study}: {link}")
    if links and not no_browser:
        _open(next(iter(links.values())))


def _open(link: str) -> None:
    """Open a link in the user's browser, where there is one; the links are printed anyway."""
    if sys.platform in {"darwin", "win32"}:
        click.launch(link)
    elif any(name in os.environ for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")):
        tool = shutil.which("xdg-open")
        if tool is not None:
            subprocess.Popen(
                [tool, link],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
