"""Transfer of registered plugins from a parent process to its workers."""

from __future__ import annotations

import os
import pickle
import sys
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
    objects = b""
    try:
        if registry.objects:
            objects = cloudpickle.dumps(registry.objects)
    except Exception as error:  # the attributes of a plugin may raise anything
        reason = " ".join(str(error).split())
        raise HeadToHeadError(
            f"a plugin registered in Python cannot be sent to workers ({reason}); move it into a "
            "file and pass the file with --plugin"
        ) from error
    files = tuple((str(path), source) for path, source in registry.files.items())
    search_path = tuple(map(os.path.abspath, sys.path))
    return WorkerPlugins(files, objects, tuple(registry.modules), search_path)


def load_plugins(plugins: WorkerPlugins) -> Registry:
    """Register the parent's plugins in a worker, in addition to built-ins and entry points.

    Unpickling is safe here: the pickle comes from the parent as an argument, not from a file.
    """
    for folder in plugins.path:
        if folder not in sys.path:
            sys.path.append(folder)
    registry = use_sources((Path(path), source) for path, source in plugins.files)
    for name in plugins.modules:
        registry.add_module(name)
    if plugins.objects:
        for plugin in pickle.loads(plugins.objects):
            register(plugin)
    return registry
