"""The page of a run in MLflow: name, parameters, tags and description."""

from __future__ import annotations

import getpass
import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headtohead.escaping import markdown_code, markdown_escape
from headtohead.planning.variants import is_runtime
from headtohead.plugins.families import COMPONENTS
from headtohead.storage import states
from headtohead.storage.experiment import DataRecord, ResolvedVariant
from headtohead.storage.record import leaves
from headtohead.storage.translations import Translation, joined_references, read_translations
from headtohead.tracking.study import TrackedRun, TrackedStudy

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

PARAM_LIMIT = 6000
TAG_LIMIT = 8000
MAX_NAME = 44
"""Maximum characters of a variant in the name of a run."""

RUN_HASH_TAG = "h2h.run_hash"
TRAINING_TAG = "h2h.training"
GROUP_TAG = "h2h.group"
SHIPPED_TAG = "h2h.shipped"
REASON_TAG = "h2h.reason"
IN_PLAN_TAG = "h2h.in_plan"


def run_name(run: TrackedRun) -> str:
    """Return the short name of a run in lists, legends and image titles."""
    return f"{shortened(run.variant.title, MAX_NAME)} · s{run.seed}"


def parameters(resolved: ResolvedVariant, **identity: str | int) -> dict[str, str]:
    """Return the axes and the ``identity`` of a run, then the flattened configuration.

    Unset fields and fields that are not hashed are omitted. An entry that is equal in all roles is a single
    parameter; an option follows the name after a dot.
    """
    counts = resolved.counts
    costs = {"parameters": counts.total, "flops_per_token": counts.flops_per_token}
    params: dict[str, Any] = {**resolved.axes, **identity, **costs}
    config = resolved.config.model_dump(mode="json")
    for family in COMPONENTS:
        config.pop(family, None)  # omitted at its default
        roles = getattr(resolved.config, family).model_dump(mode="json")
        entries = {f"{family}.{role}": entry for role, entry in roles.items()}
        first, *others = entries.values()
        if all(entry == first for entry in others):
            entries = {family: first}
        else:
            params.setdefault(family, " / ".join(entry["name"] for entry in entries.values()))
        for name, entry in entries.items():
            options = {f"{name}.{option}": value for option, value in leaves(entry["options"])}
            names = "+".join(each["name"] for each in (entry, *entry.get("next_layers", ())))
            params = {name: names, **options} | params
    named = ((name.replace(".options.", "."), value) for name, value in leaves(config))
    fields = {name: value for name, value in named if not is_runtime(*name.split(".")[:2])} | params
    return {
        mlflow_name(name): text(value)[:PARAM_LIMIT]
        for name, value in fields.items()
        if value is not None
    }


def mlflow_name(name: str) -> str:
    """Return the name of a parameter or a metric with the characters that MLflow allows."""
    return re.sub(r"[^\w\-./ :]", "-", name)


def tags(
    study: TrackedStudy, run: TrackedRun, state: str, reason: str | None, description: str
) -> dict[str, str]:
    """Return MLflow's tags and ours; writing them repeatedly is safe."""
    status, record = run.status, run.record
    values: dict[str, Any] = {
        "mlflow.source.name": study.record.file or study.name,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": record.versions.get("git_commit"),
        "mlflow.note.content": description,
        RUN_HASH_TAG: run.run_hash,
        "h2h.experiment": study.name,
        "h2h.variant": run.variant.slug,
        "h2h.seed": run.seed,
        "h2h.state": state,
        REASON_TAG: reason,
        "h2h.attempt": status.attempt,
        "h2h.device": record.execution.device if record.execution else None,
        "h2h.directory": run.path.name,
        "h2h.data_hash": record.data["data_hash"],
        "h2h.reused_from": run.reused_from,
        "h2h.pitfalls": ", ".join(pitfall.name for pitfall in record.pitfalls) or None,
    }
    values |= plan_tags(study, run)
    return {name: text(value)[:TAG_LIMIT] for name, value in values.items() if value is not None}


def plan_tags(study: TrackedStudy, run: TrackedRun) -> dict[str, str]:
    """Return the tags of a run that depend on the plan."""
    colour = study.colours.get(run.variant.slug)
    return {IN_PLAN_TAG: "yes", GROUP_TAG: run.variant.title} | (
        {"mlflow.runColor": colour} if colour else {}
    )


def note(
    study: TrackedStudy,
    run: TrackedRun,
    state: str,
    reason: str | None,
    study_link: str,
    figures: str,
) -> str:
    """Return the run's description in Markdown: question, variant, pitfalls, data, command and worst translations."""
    escape, record, data = markdown_escape, run.record, run.record.data
    counts = ", ".join(f"{count:,} {split}" for split, count in data["counts"].items())
    command = f"h2h reproduce {run.reused_from or f'{study.name}/{run.path.name}'}"
    lines = [
        f"**Question:** {escape(study.record.question)} [Answer]({study_link})",
        f"**Variant:** {escape(run.variant.title)}, seed {run.seed}",
        figures,
        *(
            f"**Pitfall, {escape(pitfall.name)}:** {escape(pitfall.consequence)}"
            for pitfall in record.pitfalls
        ),
        f"**{state}:** {escape(reason)}" if reason else "",
        f"**Trained in** {markdown_code(run.reused_from)}; its checkpoint stays there"
        if run.reused_from
        else "",
        f"**Data:** {escape(data['dataset'])}, split {escape(data['split'])} ({counts})"
        + "; **leaky split**" * bool(data.get("leaky")),
        f"**Reproduce:** {markdown_code(command)}",
    ]
    if state == states.DONE and (worst := worst_translations(run.path)):
        rows = ([row.source, joined_references(row.references), row.hypothesis] for row in worst)
        table = ["| source | reference | translation |", "|---|---|---|"]
        table += [f"| {' | '.join(escape(shortened(cell)) for cell in cells)} |" for cells in rows]
        lines += [
            f"**The {len(worst)} worst translations** (fewest words in common with a reference)"
        ]
        lines += ["\n".join(table)]
    return "\n\n".join(filter(None, lines))


def worst_translations(run: Path) -> list[Translation]:
    """Return the translations with the lowest F1 of their words and those of the best reference, the worst first."""

    def overlap(row: Translation) -> float:
        words = Counter(row.hypothesis.split())
        references = (Counter(reference.split()) for reference in row.references)
        return max(
            (words & own).total() / max(1, words.total() + own.total()) for own in references
        )

    return sorted((row for row in read_translations(run) if not row.exact), key=overlap)[:10]


def shortened(cell: str, width: int = 160) -> str:
    """Return a text with at most ``width`` characters."""
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def dataset_input(data: DataRecord) -> DatasetInput:
    """Return the data of a run for ``MlflowClient.log_inputs``: name, hash, source and number of examples."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = {"dataset": data["dataset"], "split": data["split"], "licence": data["licence"]}
    dataset = Dataset(
        name=f"{data['dataset']}, split {data['split']}",
        digest=data["data_hash"][:16],
        source_type="headtohead",
        source=json.dumps(source),
        profile=json.dumps({**data["counts"], "vocabulary": data["vocabulary"]}),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "train, valid, test")])


def run_link(experiment_id: str, run_id: str, artifact: str = "") -> str:
    """Return the address of a run's page or of one of its artifacts, relative to the page of the server."""
    page = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{experiment_id}/runs/{run_id}{page}?workflowType=machine_learning"


def image(caption: str, path: str, run_id: str) -> str:
    """Return an image in Markdown: an artifact of a run, with an address relative to the page of the server."""
    return f"![{caption}](get-artifact?path={quote(path)}&run_uuid={run_id})"


def user() -> str:
    """Return the user's name, or ``unknown`` if the system has none."""
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return "unknown"


def text(value: Any) -> str:
    """Format a value for MLflow's user interface."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(text(item) for item in value)
    return str(value)
