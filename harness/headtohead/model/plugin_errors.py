"""Errors of plugins while a model is built or called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headtohead.config.entries import entries_of
from headtohead.errors import HeadToHeadError, ReadsError, is_disk_error, machine_limit
from headtohead.plugins.registry import Registered, current
from headtohead.schema.run_config import RunConfig


def model_plugins(config: RunConfig) -> dict[str, Registered]:
    """Return the entries of a model that are not built in, by label."""
    used = [
        current().find(family, entry.name)
        for family, entry in entries_of(config)
        if family != "dataset"
    ]
    return {entry.label: entry for entry in used if not entry.is_built_in}


@contextmanager
def plugin_errors(config: RunConfig, subject: str = "a model") -> Iterator[None]:
    """Name the plugins that a model is built from in errors that their code raises.

    Errors of the disk and of the limits of the machine stay as they are, and so do all errors of a model without
    plugins.

    Args:
        config: The configuration of the model.
        subject: Start of the message.

    Raises:
        HeadToHeadError: If the code of a plugin raises an error.
    """
    plugins = model_plugins(config)
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
