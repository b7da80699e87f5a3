"""The logger ``mlflow``: the store of a project, its links and its commands.

This module is imported with the other built-in plugins, so mlflow and the pages are imported at their first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headtohead.config.project import next_command
from headtohead.plugin import Answer, LoggedStudy, Logger, StudyLogger, hookimpl
from headtohead_mlflow.address import default_uri, is_server, without_password


class MlflowLogger(Logger):
    """Logs to MLflow: studies with their answer, and runs with metrics, attention maps, outputs and weights."""

    packages = ("mlflow",)
    charts_command = "ui"
    accepts_uri = True

    @classmethod
    def for_study(cls, study: LoggedStudy, uri: str | None) -> StudyLogger:
        from headtohead_mlflow.study_logger import MlflowStudyLogger

        return MlflowStudyLogger(study, uri or default_uri(study.path.parent))

    @classmethod
    def has_all(cls, study: LoggedStudy, answer: Answer | None) -> bool:
        from headtohead.tracking.study import TrackedStudy  # it imports scipy
        from headtohead_mlflow.completeness import store_has

        assert isinstance(study, TrackedStudy)
        return store_has(study, answer, default_uri(study.path.parent))

    @classmethod
    def tracker_name(cls, runs: Path) -> str:
        return without_password(default_uri(runs))

    @classmethod
    def check_tracker(cls, runs: Path) -> str:
        from headtohead_mlflow.store import database_of, open_store

        uri = default_uri(runs)
        database = database_of(uri)
        if database is not None and not database.exists():
            return f"'{database}' will be created by the first run"
        open_store(uri, create=False)
        return f"{without_password(uri)} can be opened"

    @classmethod
    def closing_line(cls, runs: Path, uri: str | None) -> str | None:
        store = uri or default_uri(runs)
        if is_server(store):
            return None
        command = next_command("ui", None, runs)
        return f"store: {without_password(store)}; the links require a running {command}"


@hookimpl
def register_loggers() -> Mapping[str, type[Logger]]:
    return {"mlflow": MlflowLogger}
