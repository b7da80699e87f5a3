"""``h2h ui``: start an MLflow server on the project's store."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import nullcontext
from pathlib import Path

import click

from headtohead.cli.options import runs_option
from headtohead_judge.output import echo


@click.command()
@runs_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=5000,
    show_default=True,
    help="Port of the server.",
)
@click.option("--no-browser", is_flag=True, help="Print the links without opening a browser.")
def command(runs: Path, port: int, no_browser: bool) -> None:
    """Start an MLflow server on the project's store; Ctrl-C stops it.

    The server is reachable from this machine only. The command prints a link for every study. If
    MLFLOW_TRACKING_URI is the address of a server, no server is started and the links lead there.
    """
    from headtohead_mlflow.address import default_uri, is_server
    from headtohead_mlflow.serving import server, study_links

    uri = default_uri(runs)
    links = study_links(uri, port) or {"(no study yet)": f"http://127.0.0.1:{port}"}
    with nullcontext() if is_server(uri) else server(uri, port) as process:
        for study, link in links.items():
            echo(f"{study}: {link}")
        echo("bookmark these links: without workflowType, MLflow opens an empty page of traces")
        # Without a desktop, a browser in the terminal would cover the links.
        desktop = {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
        if not no_browser and (desktop or sys.platform in {"darwin", "win32"}):
            newest = next(iter(links.values()))
            webbrowser.open(newest)  # in a new session, so that Ctrl-C does not close it
        if process is not None:
            echo("Ctrl-C stops the server")
            process.wait()
