"""Errors of plugins while a model is built or called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headtohead.config.entries import named_entries
from headtohead.errors import HeadToHeadError, ReadsError, is_disk_error, machine_limit
from headtohead.plugins.registry import Registered, current
from headtohead.schema.run_config import RunConfig


def model_plugins(*configs: RunConfig) -> dict[str, Registered]:
    """Return the entries of models that are not built in, by label."""
    plugins = {}
    for config in configs:
        for entry in named_entries(config):
            if entry.family != "dataset" and not entry.is_built_in:
                plugins[entry.label] = entry
    return plugins


@contextmanager
def plugin_errors(*configs: RunConfig, subject: str = "a model") -> Iterator[None]:
    """Name the plugins that a model is built from in errors that their code raises.

    Errors of the disk and of the limits of the machine stay as they are, and so do all errors of a model without
    plugins.

    Args:
        *configs: The configurations of the model's members.
        subject: Start of the message.

    Raises:
        HeadToHeadError: If the code of a plugin raises an error.
    """
    plugins = model_plugins(*configs)
    try:
        yield
    except Exception as error:
        is_passed_on = (
            isinstance(error, ReadsError)
            or is_disk_error(error, of_plugin=True)
            or machine_limit(error)
        )
        if not plugins or is_passed_on:
            raise
        is_explained = isinstance(error, HeadToHeadError)
        reason = str(error) if is_explained else current().describe(error)
        traceback = "" if is_explained else " (h2h -v prints the traceback)"
        labels = sorted(plugins)
        raise HeadToHeadError(
            f"{subject} with {' and '.join(labels)} fails: {reason}; correct the plugin, and test it with "
            f"'{current().check_command(plugins[labels[0]])}'{traceback}"
        ) from error
