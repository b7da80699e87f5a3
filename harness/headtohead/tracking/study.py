"""A study in MLflow: one experiment with its runs flat, and the study's own run in an index.

The page shows nested runs of one experiment only as a collapsed parent; so the study's run lives in
the experiment ``headtohead studies``, and its runs point to it with ``mlflow.parentRunId``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from headtohead.tracking.description import PARAM_LIMIT, TAG_LIMIT, creation_tags
from headtohead.tracking.replay import Destination, all_runs
from headtohead.tracking.rundirs import LIVE_STATES, PLAN, Study, milliseconds, state_of
from headtohead.tracking.store import Store
from headtohead.tracking.view import link, views

INDEX = "headtohead studies"
STUDY_TAG = "h2h.study"
REPORT_FILES = ("index.html", "report.md", "results.csv")


def open_study(store: Store, study: Study) -> Destination:
    """Find or create the study's experiment and its own run."""
    experiment_id = store.experiment(study.name)
    index_id = store.experiment(INDEX)
    destination = Destination(store, experiment_id, _study_run(store, index_id, study))
    destination.look()
    return destination


def describe(destination: Destination, study: Study) -> None:
    """Publish what is known before the first run ends: the question, the plan and the views."""
    client = destination.store.client
    for name, value in _experiment_tags(destination, study).items():
        client.set_experiment_tag(destination.experiment_id, name, value)


def close_study(destination: Destination, study: Study, reports_root: Path) -> None:
    """Bring the study's own run up to date: counts, plan, report, and its final status."""
    from mlflow.entities import Param, RunTag

    states = Counter(_states(study))
    client, run_id = destination.store.client, destination.parent
    tags = {
        "mlflow.note.content": _note(destination, study, states, reports_root)[:TAG_LIMIT],
        "h2h.states": ", ".join(f"{count} {state}" for state, count in states.most_common()),
        "h2h.experiment_id": destination.experiment_id,
    }
    there = client.get_run(run_id).data.params
    params = {name: value for name, value in _params(study).items() if name not in there}
    client.log_batch(
        run_id,
        params=[Param(name, value) for name, value in params.items()],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )
    _ship_files(destination, study, reports_root)
    finished = not (states.keys() & (LIVE_STATES | {"waiting"}))
    if finished:
        client.set_terminated(run_id, "FINISHED", _ended(study))
    else:
        client.update_run(run_id, status="RUNNING")


def _study_run(store: Store, index_id: str, study: Study) -> str:
    found = all_runs(store, index_id, f"tags.`{STUDY_TAG}` = '{study.name}'")
    if found:
        return str(found[0].info.run_id)
    created = store.client.create_run(
        index_id,
        start_time=milliseconds(study.plan["created"]),
        run_name=study.name,
        tags={STUDY_TAG: study.name, "mlflow.source.name": study.plan.get("file") or study.name,
              "mlflow.source.type": "LOCAL", **creation_tags()},
    )  # fmt: skip
    return str(created.info.run_id)


def _experiment_tags(destination: Destination, study: Study) -> dict[str, str]:
    note = "\n\n".join([
        f"**{study.plan['question']}**",
        *([study.plan["description"]] if study.plan.get("description") else []),
        f"Views (button *Views* above the runs): the study, its variants as means over seeds, one "
        f"per axis, attention. [Open the study's view]({link(destination.experiment_id, '')}).",
        "Steps of the attention images are the probe sentences.",
    ])  # fmt: skip
    return {
        "mlflow.note.content": note,
        "mlflow.experimentKind": "custom_model_development",
        "mlflow.experiment.primaryMetric.name": study.plan["metrics"]["primary"],
        STUDY_TAG: study.name,
        "h2h.study_run": destination.parent,
        **views(study),
    }


def _states(study: Study) -> list[str]:
    return [
        state_of(run.status_or_unreadable(), sweep=True)[0] if run.begun() else "waiting"
        for run in study.runs()
    ]


def _params(study: Study) -> dict[str, str]:
    plan = study.plan
    found: dict[str, Any] = {
        "axes": ", ".join(plan["axes"]), "baseline": plan["baseline"], "match": plan["match"],
        "primary metric": plan["metrics"]["primary"], "dataset": plan["data"]["dataset"],
        "question": plan["question"],
    }  # fmt: skip
    return {name: str(value)[:PARAM_LIMIT] for name, value in found.items()}


def _note(destination: Destination, study: Study, states: Counter[str], reports: Path) -> str:
    plan = study.plan
    counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
    lines = [f"**{plan['question']}**"]
    report = reports / study.name / "report.md"
    if report.is_file():
        lines.append(report.read_text(encoding="utf-8")[: TAG_LIMIT // 2])
    lines += [
        f"{len(plan['variants'])} variants, {len(plan['seeds'])} seeds; runs: {counts}. "
        f"[Open the study's view]({link(destination.experiment_id, '')})",
        *_equal(plan), *_excluded(plan), f"Repeat it: `{plan['command']}`",
    ]  # fmt: skip
    return "\n\n".join(lines)


def _equal(plan: dict[str, Any]) -> list[str]:
    pairs = [variant for variant in plan["variants"] if variant["equal_to"]]
    return [
        f"`{variant['slug']}` equals `{variant['equal_to']}` by construction "
        f"({variant['equal_reason']}): trained once, one set of runs"
        for variant in pairs
    ]


def _excluded(plan: dict[str, Any]) -> list[str]:
    return [f"Left out: `{entry['slug']}` ({entry['reason']})" for entry in plan["excluded"]]


def _ship_files(destination: Destination, study: Study, reports_root: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "study"
        folder.mkdir()
        shutil.copyfile(study.folder / PLAN, folder / PLAN)
        report = reports_root / study.name
        for file in REPORT_FILES:
            if (report / file).is_file():
                (folder / "report").mkdir(exist_ok=True)
                shutil.copyfile(report / file, folder / "report" / file)
        if (report / "figures").is_dir():
            shutil.copytree(report / "figures", folder / "figures")
        destination.store.client.log_artifacts(destination.parent, str(folder))


def _ended(study: Study) -> int | None:
    statuses = [run.status_or_unreadable() for run in study.runs() if run.begun()]
    moments = [milliseconds(status.get("ended")) for status in statuses]
    return max((moment for moment in moments if moment), default=None)
