"""``h2h ui``: open MLflow on the project's store."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--runs",
    "runs_root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    envvar="H2H_RUNS",
    show_default=True,
    help="Folder of the runs.",
)
@click.option("--port", type=int, default=5000, show_default=True, help="Port on this machine.")
@click.option("--no-browser", is_flag=True, help="Only print the links.")
def command(runs_root: Path, port: int, no_browser: bool) -> None:
    """Open MLflow on the project's store, for this machine only; Ctrl-C ends it.

    Prints the link of every study's view. With MLFLOW_TRACKING_URI set to a server, nothing is
    started: the links lead to that server.
    """
    from headtohead.tracking import environment
    from headtohead.tracking.serving import Server, server_of, study_links
    from headtohead.tracking.store import default_uri

    environment.require(str(runs_root))
    uri = default_uri(runs_root)
    links = study_links(uri, server_of(uri, port))
    if uri.startswith("http"):
        _tell(links, no_browser)
        return
    with Server(uri, port) as server:
        _tell(links or {"(no study yet)": server.address}, no_browser)
        click.echo("Ctrl-C ends it")
        server.wait()


def _tell(links: dict[str, str], no_browser: bool) -> None:
    for study, link in links.items():
        click.echo(f"{study}: {link}")
    if links and not no_browser:
        click.launch(next(iter(links.values())))
