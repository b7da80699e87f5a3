"""Trains each stack in a process on this machine, forked from a server that has imported torch."""

from headtohead.plugin import Launcher, LocalLauncher, hookimpl


@hookimpl
def register_launchers() -> dict[str, type[Launcher]]:
    return {"local": LocalLauncher}
