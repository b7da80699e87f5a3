"""Notebook output of plans, results, runs and attention maps.

`register` sets ``_repr_html_`` on classes of lower packages, so that these do not import this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headtohead.analysis.results import RunsTable
    from headtohead.execution.loaded import LoadedRun
    from headtohead.planning.plan import Plan
    from headtohead.training.maps import SentenceMaps

__all__ = ["register"]


def register(*classes: type) -> None:
    """Set ``_repr_html_`` on ``Plan``, ``RunsTable``, ``LoadedRun`` or ``SentenceMaps``."""
    for cls in classes:
        type.__setattr__(cls, "_repr_html_", _OUTPUT[cls.__name__])


def _plan(plan: Plan) -> str:
    from headtohead.report.notebook.plans import plan_html

    return plan_html(plan)


def _results(table: RunsTable) -> str:
    from headtohead.report.notebook.results import rows_html, summary_html

    return summary_html(table.frames) + rows_html(table)


def _run(run: LoadedRun) -> str:
    from headtohead.report.notebook.runs import run_html
    from headtohead.storage.run_directory import RunDirectory

    directory = RunDirectory(run.path)
    results = directory.results
    return run_html(directory.record, results.metrics if results else {})


def _maps(maps: SentenceMaps) -> str:
    from headtohead.report.notebook.maps import maps_html

    return maps_html(maps.record, maps.weights)


_OUTPUT = {"Plan": _plan, "RunsTable": _results, "LoadedRun": _run, "SentenceMaps": _maps}
