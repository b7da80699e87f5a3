"""An experiment in MLflow: its runs in an MLflow experiment, and a summary run in an index experiment.

MLflow displays nested runs of the same experiment only as a collapsed parent. The summary run is therefore in the
index experiment ``headtohead studies``, and the runs refer to it with ``mlflow.parentRunId``.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.escaping import markdown_code, markdown_escape, safe_markdown
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentRecord
from headtohead.storage.paths import inside
from headtohead.storage.staleness import stale_changes
from headtohead.tracking.description import IN_PLAN_TAG, PARAM_LIMIT, TAG_LIMIT, creation_tags
from headtohead.tracking.replay import Destination
from headtohead.tracking.rundirs import UNREADABLE, TrackedRun, TrackedStudy, milliseconds
from headtohead.tracking.store import Store, all_runs
from headtohead.tracking.view import link, views

INDEX = "headtohead studies"
STUDY_TAG = "h2h.study"
STALE_TAG = "h2h.stale"
NOTE_TAG = "mlflow.note.content"
# Without this tag, MLflow treats the experiment as generative AI and hides the charts of runs.
KIND = {"mlflow.experimentKind": "custom_model_development"}
INDEX_TAGS = {**KIND, NOTE_TAG: "A run per experiment, with its plan and its report."}
REPORT_FILES = ("index.html", "report.md", "answer.json", "results.csv")


def open_study(store: Store, study: TrackedStudy) -> Destination:
    """Find or create the MLflow experiment and the summary run."""
    experiment_id = store.experiment(study.name)
    index_id = store.experiment(INDEX)
    parent = _study_run(store, index_id, study)
    destination = Destination(store, experiment_id, index_id, parent)
    destination.refresh()
    return destination


def describe(destination: Destination, study: TrackedStudy) -> None:
    """Write the question and the views, which are available before the first run ends."""
    client = destination.store.client
    _mark_plan(destination, study)
    for name, value in _experiment_tags(destination, study).items():
        client.set_experiment_tag(destination.experiment_id, name, value)
    for name, value in INDEX_TAGS.items():
        client.set_experiment_tag(destination.index_id, name, value)


def close_study(destination: Destination, study: TrackedStudy, reports_root: Path) -> None:
    """Update the summary run: counts, plan, report and status."""
    from mlflow.entities import Param, RunTag

    counts = Counter(_states(study))
    client, run_id = destination.store.client, destination.parent
    report = _report(reports_root, study)
    stale = stale_changes(study)
    tags = {
        NOTE_TAG: (_stale_line(stale) + _note(destination, study, counts, report))[:TAG_LIMIT],
        "h2h.states": ", ".join(f"{count} {state}" for state, count in counts.most_common()),
        "h2h.experiment_id": destination.experiment_id,
        "h2h.verdicts": _verdicts(reports_root, study)[:TAG_LIMIT],
    }
    if stale:
        tags[STALE_TAG] = "; ".join(stale)[:TAG_LIMIT]
    existing = client.get_run(run_id).data
    if not stale and STALE_TAG in existing.tags:
        client.delete_tag(run_id, STALE_TAG)
    params = {name: value for name, value in _params(study).items() if name not in existing.params}
    client.log_batch(
        run_id,
        params=[Param(name, value) for name, value in params.items()],
        tags=[RunTag(name, value) for name, value in tags.items()],
    )
    _ship_files(destination, study, reports_root)
    finished = not (counts.keys() & (states.PENDING | {"waiting"}))
    if finished:
        note = _stale_line(stale) + _experiment_note(destination, study, _answer(reports_root, study))
        client.set_experiment_tag(destination.experiment_id, NOTE_TAG, note[:TAG_LIMIT])
        client.set_terminated(run_id, "FINISHED", _ended(study))
    else:
        client.update_run(run_id, status="RUNNING")


def _stale_line(stale: Sequence[str]) -> str:
    """Return a paragraph with what has changed since the runs were trained; empty without a change."""
    return f"**STALE**: {markdown_escape('; '.join(stale))}. The results below are older.\n\n" if stale else ""


def _study_run(store: Store, index_id: str, study: TrackedStudy) -> str:
    for run in all_runs(store, index_id):
        if run.data.tags.get(STUDY_TAG) == study.name:
            return str(run.info.run_id)
    created = store.client.create_run(
        index_id,
        start_time=milliseconds(study.record.created),
        run_name=study.name,
        tags={
            STUDY_TAG: study.name,
            "mlflow.source.name": study.record.file or study.name,
            "mlflow.source.type": "LOCAL",
            **creation_tags(),
        },
    )
    return str(created.info.run_id)


def _experiment_tags(destination: Destination, study: TrackedStudy) -> dict[str, str]:
    return {
        NOTE_TAG: _experiment_note(destination, study, ""),
        **KIND,
        "mlflow.experiment.primaryMetric.name": study.record.metrics.primary,
        STUDY_TAG: study.name,
        "h2h.study_run": destination.parent,
        **views(study, _search(destination)),
    }


def _mark_plan(destination: Destination, study: TrackedStudy) -> None:
    """Tag runs by whether they are in the current plan; runs of earlier plans stay in the MLflow experiment."""
    planned = {run.run_hash for run in study.runs()}
    for run_hash, logged in destination.logged_runs.items():
        in_plan = "yes" if run_hash in planned else "no"
        if logged.in_plan != in_plan:
            destination.store.client.set_tag(logged.run_id, IN_PLAN_TAG, in_plan)
            logged.in_plan = in_plan


def _search(destination: Destination) -> str:
    has_old_runs = any(logged.in_plan == "no" for logged in destination.logged_runs.values())
    return f"tags.`{IN_PLAN_TAG}` = 'yes'" if has_old_runs else ""


def _experiment_note(destination: Destination, study: TrackedStudy, answer: str) -> str:
    """Return the experiment's description; MLflow shows its first line even if it is collapsed."""
    paragraphs = [
        f"**{markdown_escape(study.record.question)}** {answer.replace('**', '')}",
        safe_markdown(study.record.description or ""),
        "Views (in the list above the runs): all runs, variants averaged over seeds, a view per "
        f"axis, attention. [Open the view of all runs]({link(destination.experiment_id, '')}).",
        *_probes(study.record),
    ]
    return "\n\n".join(paragraph.strip() for paragraph in paragraphs if paragraph)[:TAG_LIMIT]


def _probes(plan: ExperimentRecord) -> list[str]:
    sentences = [f"{step}: {markdown_escape(probe.source)}" for step, probe in enumerate(plan.probes)]
    return [f"Steps of the attention images are probe sentences. {'; '.join(sentences)}"]


def _states(study: TrackedStudy) -> list[str]:
    return [_state(run) if run.begun() else "waiting" for run in study.runs()]


def _state(run: TrackedRun) -> str:
    try:
        return run.observed(sweep=True)[1]
    except HeadToHeadError:
        return UNREADABLE


def _params(study: TrackedStudy) -> dict[str, str]:
    plan = study.record
    params: dict[str, Any] = {
        "axes": ", ".join(plan.axes),
        "baseline": plan.baseline,
        "match": plan.match,
        "primary metric": plan.metrics.primary,
        "dataset": plan.data["dataset"],
        "data.seed": plan.by_slug[plan.baseline].config["data"]["seed"],
        "question": plan.question,
    }
    return {name: str(value)[:PARAM_LIMIT] for name, value in params.items()}


def _report(reports_root: Path, study: TrackedStudy) -> str:
    """Return the report without title, pictures and captions; empty if there is no report."""
    path = inside(reports_root, study.name, "report.md")
    if not path.is_file():
        return ""
    paragraphs = path.read_text(encoding="utf-8").strip().split("\n\n")
    # A picture and its caption are a single paragraph.
    return "\n\n".join(paragraph for paragraph in paragraphs if not paragraph.startswith(("# ", "![")))


def _answer(reports_root: Path, study: TrackedStudy) -> str:
    """Return the answer of the report; empty if there is no report."""
    path = inside(reports_root, study.name, "answer.json")
    return markdown_escape(str(files.read_json(path)["answer"])) if path.is_file() else ""


def _verdicts(reports_root: Path, study: TrackedStudy) -> str:
    """Return the variants of the report's ``results.csv`` by verdict; empty if there is no report."""
    path = inside(reports_root, study.name, "results.csv")
    if not path.is_file():
        return ""
    variants: dict[str, dict[str, None]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["verdict"]:
                variants.setdefault(row["verdict"], {})[row["variant"]] = None
    return "; ".join(f"{verdict}: {', '.join(slugs)}" for verdict, slugs in variants.items())


def _note(destination: Destination, study: TrackedStudy, states_of_runs: Counter[str], report: str) -> str:
    plan = study.record
    counts = ", ".join(f"{count} {state}" for state, count in states_of_runs.most_common())
    lines = [f"**{markdown_escape(plan.question)}**"] + ([report[: TAG_LIMIT // 2]] if report else [])
    lines += [
        f"{len(plan.variants)} variants, {len(plan.seeds)} seeds; runs: {counts}. "
        f"[Open the view of all runs]({link(destination.experiment_id, '')})",
        *_equal(plan),
        *_excluded(plan),
        f"Command: {markdown_code(plan.command)}",
    ]
    return "\n\n".join(lines)


def _equal(plan: ExperimentRecord) -> list[str]:
    return [
        f"{markdown_code(variant.slug)} equals {markdown_code(variant.equal_to)} by construction "
        f"({markdown_escape(variant.equal_reason)}); they share their runs"
        for variant in plan.variants
        if variant.equal_to
    ]


def _excluded(plan: ExperimentRecord) -> list[str]:
    return [f"Excluded: {markdown_code(entry.slug)} ({markdown_escape(entry.reason)})" for entry in plan.excluded]


def _ship_files(destination: Destination, study: TrackedStudy, reports_root: Path) -> None:
    with files.scratch_folder() as scratch:
        folder = scratch / "study"
        folder.mkdir()
        shutil.copyfile(study.path / EXPERIMENT, folder / EXPERIMENT)
        report = inside(reports_root, study.name, tree=True)
        for file in REPORT_FILES:
            if (report / file).is_file():
                (folder / "report").mkdir(exist_ok=True)
                shutil.copyfile(report / file, folder / "report" / file)
        if (report / "figures").is_dir():
            shutil.copytree(report / "figures", folder / "figures")
        destination.store.client.log_artifacts(destination.parent, str(folder))


def _ended(study: TrackedStudy) -> int | None:
    moments = []
    for run in study.runs():
        if run.begun() and run.state_or_unreadable() != UNREADABLE:
            moments.append(milliseconds(run.status.ended))
    return max((moment for moment in moments if moment), default=None)
