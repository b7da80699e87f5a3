"""Import of mlflow with settings that must be made before its import."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from types import ModuleType

from headtohead.errors import HeadToHeadError

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # With MLflow's defaults, a call blocks for four minutes if the server is down.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow logs a traceback before it raises; the exception suffices.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}

ABSENT = "mlflow is not installed; runs stay in {runs}; install it and run h2h sync"


def installed() -> bool:
    """Return whether mlflow is installed, without importing it."""
    return importlib.util.find_spec("mlflow") is not None


def require(runs: str = "their folder") -> None:
    """Raise HeadToHeadError if mlflow is not installed; ``runs`` is the folder that the message names."""
    if not installed():
        raise HeadToHeadError(ABSENT.format(runs=runs))


def load() -> ModuleType:
    """Import mlflow with `SETTINGS`; environment variables set by the user take precedence.

    Raises:
        HeadToHeadError: If mlflow is not installed.
    """
    require()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return importlib.import_module("mlflow")
