"""The address of the MLflow store of a project."""

from __future__ import annotations

import os
from pathlib import Path

DATABASE = "mlflow.db"
URI_VARIABLE = "MLFLOW_TRACKING_URI"


def default_uri(runs: Path) -> str:
    """Return the MLflow store: ``MLFLOW_TRACKING_URI``, else a SQLite file beside the runs."""
    return os.environ.get(URI_VARIABLE) or f"sqlite:///{runs.resolve().parent / DATABASE}"


def without_password(uri: str) -> str:
    """Return the URI of a store without its user and password."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def is_server(uri: str) -> bool:
    """Return whether a URI is the address of a server."""
    return uri.startswith("http")
