"""Processes on this machine, one per stack, from a forkserver that has torch loaded."""

from headtohead import Launcher, LocalLauncher, hookimpl


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    """Register ``local``."""
    return {"local": LocalLauncher}
