"""Registers the command of MLflow; ``h2h --help`` imports this module, so it imports nothing else."""

from collections.abc import Mapping

from headtohead.plugin import hookimpl


@hookimpl
def register_commands() -> Mapping[str, tuple[str, str]]:
    return {"ui": ("headtohead_mlflow.ui:command", "Open MLflow on the project's store.")}
