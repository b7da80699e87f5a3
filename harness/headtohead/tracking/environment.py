"""MLflow's settings for our own use, set before mlflow is imported: the only way to import it."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from types import ModuleType

from headtohead.errors import HeadToHeadError

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # With MLflow's defaults one call blocks for four minutes when the server is down.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow logs a traceback of its own before it raises; the exception is all we need.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}

ABSENT = "mlflow is not installed; runs stay in {runs}; install it and type h2h sync"


def installed() -> bool:
    """Say whether mlflow can be imported, without importing it."""
    return importlib.util.find_spec("mlflow") is not None


def require(runs: str = "their folder") -> None:
    """Raise the one line that says what to do where mlflow is missing."""
    if not installed():
        raise HeadToHeadError(ABSENT.format(runs=runs))


def load() -> ModuleType:
    """Import mlflow with our settings; a variable that the user has set stays as it is.

    Raises:
        HeadToHeadError: If mlflow is not installed.
    """
    require()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return importlib.import_module("mlflow")
