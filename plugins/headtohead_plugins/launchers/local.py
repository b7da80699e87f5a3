"""Launchers of this machine: a process per stack, forked from a server that has imported torch, or no process."""

from headtohead.plugin import InlineLauncher, Launcher, LocalLauncher, hookimpl


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    return {"local": LocalLauncher, "inline": InlineLauncher}
