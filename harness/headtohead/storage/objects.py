"""Plugins of this process, handed to the workers of a study."""

from __future__ import annotations

import pickle
from pathlib import Path

import cloudpickle

from headtohead.errors import HeadToHeadError
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.plugins.registry import Registry, current, register, use_sources


def worker_plugins() -> WorkerPlugins:
    """Return the plugin files and objects that are registered in this process.

    Raises:
        HeadToHeadError: If an object that was registered in Python cannot be pickled.
    """
    registry = current()
    try:
        objects = cloudpickle.dumps(registry.objects) if registry.objects else b""
    except Exception as error:  # whatever the attributes of a plugin raise
        reason = " ".join(str(error).split())
        raise HeadToHeadError(
            f"a plugin registered in Python cannot be sent to workers ({reason}); put it into a "
            "file and name that with --plugin"
        ) from error
    files = tuple((str(path), source) for path, source in registry.files.items())
    return WorkerPlugins(files, objects)


def load_plugins(sent: WorkerPlugins) -> Registry:
    """Register in a worker what its parent sent, on top of built-ins and entry points.

    The pickle is the parent's own: it reached this process as an argument, not in a file.
    """
    registry = use_sources((Path(path), source) for path, source in sent.files)
    for plugin in pickle.loads(sent.objects) if sent.objects else ():
        register(plugin)
    return registry
