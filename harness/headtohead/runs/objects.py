"""Plugins registered from Python, handed to the workers of a study."""

from __future__ import annotations

from pathlib import Path

import cloudpickle

from headtohead.runs import files

NAME = ".plugins.pickle"


def store_objects(experiment: Path, objects: list[object]) -> None:
    """Keep plugin objects in the experiment's folder; without any, leave no file."""
    path = experiment / NAME
    if objects:
        files.replace(path, lambda temporary: temporary.write_bytes(cloudpickle.dumps(objects)))
    else:
        path.unlink(missing_ok=True)


def load_objects(experiment: Path) -> list[object]:
    """Return what ``store_objects`` kept; the parent of this very study wrote it."""
    path = experiment / NAME
    objects: list[object] = cloudpickle.loads(path.read_bytes()) if path.exists() else []
    return objects
