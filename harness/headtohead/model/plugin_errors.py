"""Errors of plugins while a model is built or called.

`Transformer` and its parts raise an error in the code of a plugin unchanged. Only what the host checks, such as the
tensors of an entry or the shape of a result, is a `HeadToHeadError`. The plan, the check before training and `load` use
`plugin_errors`, which names the plugin. A worker has no such context: it ends with the error, and its log names it.
"""

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
    """Turn an error of the block into one that names the plugins from which a model is built.

    A model without plugins that are not built in has all its errors unchanged. Errors of the disk, of the limits of the
    machine and `ReadsError` are never changed. Which plugin raised the error is not known; all are named.

    Args:
        *configs: The configurations of the model's members.
        subject: Start of the message.

    Raises:
        HeadToHeadError: In place of any other error of the block, and if an entry of a configuration is unknown.
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
