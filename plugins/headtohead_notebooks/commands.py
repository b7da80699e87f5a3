"""Registers the commands of the notebooks; ``h2h --help`` imports this module, so it imports nothing else."""

from collections.abc import Mapping

from headtohead.plugin import hookimpl


@hookimpl
def register_commands() -> Mapping[str, tuple[str, str]]:
    return {
        "notebooks": (
            "headtohead_notebooks.cli.notebooks:command",
            "Compare the five notebooks on one page.",
        ),
        "trace": ("headtohead_notebooks.cli.trace:command", "Show every step of a forward pass."),
        "import-checkpoint": (
            "headtohead_notebooks.cli.import_checkpoint:command",
            "Import a notebook's checkpoint as a run.",
        ),
    }
