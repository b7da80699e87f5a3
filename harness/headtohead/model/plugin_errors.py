"""Errors of plugins while a model is called.

An error in a constructor or a class method of a plugin is a `PluginError` (see `registry.calling`), and so is an error
of a quirk or a schedule that the plan calls. An error in a hook that a forward pass calls is raised unchanged; only
what the host checks, such as the shape of a result, is a `HeadToHeadError`. The plan, the check before training and
`load` use `plugin_errors`, which names the plugins. A worker has no such context: it ends with the error, and its log
names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headtohead.config.entries import named_entries
from headtohead.errors import (
    HeadToHeadError,
    PluginError,
    ReadsError,
    is_disk_error,
    machine_limit,
)
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
    """Turn an error of the block into one that names the plugins from which a model is built.

    A `PluginError` names its own plugin; ``subject`` is put before it. Errors of the disk, of the limits of the machine
    and `ReadsError` are unchanged. Any other error may come from any of the plugins that are not built in, so all of
    them are named; without such plugins, it is unchanged.

    Args:
        *configs: The configurations of the model's members.
        subject: Start of the message.

    Raises:
        HeadToHeadError: In place of these errors, and if an entry of a configuration is unknown.
    """
    plugins = model_plugins(*configs)
    try:
        yield
    except PluginError as error:  # it names the plugin
        raise HeadToHeadError(f"{subject} with {error}") from error.__cause__
    except Exception as error:
        is_passed_on = (
            isinstance(error, ReadsError)
            or is_disk_error(error, of_plugin=True)
            or machine_limit(error)
        )
        if not plugins or is_passed_on:
            raise
        failure = current().failure(plugins.values(), error)
        raise HeadToHeadError(f"{subject} with {failure}") from error
