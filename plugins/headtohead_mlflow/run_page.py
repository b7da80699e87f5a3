"""The page of a run in MLflow: name, parameters, tags and description."""

from __future__ import annotations

import getpass
import json
import re
from collections import Counter
from collections.abc import Mapping
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

MAX_TRANSLATIONS = 10

PARAMETERS = "cost/parameters"
FLOPS = "cost/flops_per_token"

NOTE_TAG = "mlflow.note.content"
"""Tag with the description of a run, a model or an experiment, in Markdown."""

RUN_HASH_TAG = "h2h.run_hash"
TRAINING_TAG = "h2h.training"
SHIPPED_TAG = "h2h.shipped"
"""Tag of a complete run and of its model: the content hash of the run."""

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
    config = resolved.config.model_dump(mode="json")
    for family in COMPONENTS:
        config.pop(family, None)  # omitted at its default
    params: dict[str, Any] = {}
    for name, value in leaves(config):
        if not is_runtime(*name.split(".")[:2]):
            params[name.replace(".options.", ".").removesuffix(".name")] = value
    for family in COMPONENTS:
        roles = getattr(resolved.config, family).model_dump(mode="json")
        params |= _family_parameters(family, roles)
    params |= resolved.axes
    params |= identity
    params["parameters"] = resolved.counts.total
    params["flops_per_token"] = resolved.counts.flops_per_token
    shown = {}
    for name, value in params.items():
        if value is not None:
            shown[mlflow_name(name)] = text(value)[:PARAM_LIMIT]
    return shown


def costs(resolved: ResolvedVariant) -> dict[str, float]:
    """Return the number of parameters and FLOPs as metrics, which charts and searches compare as numbers."""
    return {
        PARAMETERS: float(resolved.counts.total),
        FLOPS: float(resolved.counts.flops_per_token),
    }


def _family_parameters(family: str, roles: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the entries of a family by role with their options; a single parameter if all roles are equal."""
    first, *others = roles.values()
    if all(entry == first for entry in others):
        entries = {family: first}
        params = {}
    else:
        entries = {f"{family}.{role}": entry for role, entry in roles.items()}
        params = {family: " / ".join(entry["name"] for entry in roles.values())}
    for name, entry in entries.items():
        layers = [entry, *entry.get("next_layers", ())]
        params[name] = "+".join(layer["name"] for layer in layers)
        for option, value in leaves(entry["options"]):
            params[f"{name}.{option}"] = value
    return params


def mlflow_name(name: str) -> str:
    """Return the name of a parameter with the characters that MLflow allows."""
    return re.sub(r"[^\w\-./ :]", "-", name)


def metric_name(name: str) -> str:
    """Return the name of a metric with the characters that MLflow allows, without spaces."""
    return re.sub(r"\s+", "-", mlflow_name(name).strip())


def tags(
    study: TrackedStudy, run: TrackedRun, state: str, reason: str | None, description: str
) -> dict[str, str]:
    """Return MLflow's tags and ours; writing them repeatedly is safe."""
    status = run.status
    record = run.record
    values: dict[str, Any] = {
        "mlflow.source.name": study.record.file or study.name,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": record.versions.get("git_commit"),
        NOTE_TAG: description,
        RUN_HASH_TAG: run.run_hash,
        "h2h.experiment": study.name,
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
    return {name: text(value)[:TAG_LIMIT] for name, value in values.items() if value is not None}


def note(
    study: TrackedStudy,
    run: TrackedRun,
    state: str,
    reason: str | None,
    study_link: str,
    figures: str,
) -> str:
    """Return the run's description in Markdown: question, variant, pitfalls, data, command and worst translations."""
    escape = markdown_escape
    paragraphs = [
        f"**Question:** {escape(study.record.question)} [Answer]({study_link})",
        f"**Variant:** {escape(run.variant.title)}, seed {run.seed}",
    ]
    if figures:
        paragraphs.append(figures)
    for pitfall in run.record.pitfalls:
        paragraphs.append(f"**Pitfall, {escape(pitfall.name)}:** {escape(pitfall.consequence)}")
    if reason:
        paragraphs.append(f"**{state}:** {escape(reason)}")
    source = f"{study.name}/{run.path.name}"
    if run.reused_from:
        source = run.reused_from
        paragraphs.append(f"**Trained in** {markdown_code(source)}; its checkpoint stays there")
    paragraphs.append(f"**Data:** {_data_text(run.record.data)}")
    paragraphs.append(f"**Reproduce:** {markdown_code(f'h2h reproduce {source}')}")
    if state == states.DONE:
        paragraphs += _worst_paragraphs(run.path)
    return "\n\n".join(paragraphs)


def _data_text(data: DataRecord) -> str:
    """Return dataset, split and number of examples in Markdown."""
    counts = ", ".join(f"{count:,} {split}" for split, count in data["counts"].items())
    dataset = markdown_escape(data["dataset"])
    split = markdown_escape(data["split"])
    leak = "; **leaky split**" if data.get("leaky") else ""
    return f"{dataset}, split {split} ({counts}){leak}"


def _worst_paragraphs(run: Path) -> list[str]:
    """Return a heading and a Markdown table of the worst translations; empty if there are none."""
    worst = worst_translations(run)
    if not worst:
        return []
    table = ["| source | reference | translation |", "|---|---|---|"]
    for row in worst:
        cells = [row.source, joined_references(row.references), row.hypothesis]
        escaped = [markdown_escape(shortened(cell)) for cell in cells]
        table.append(f"| {' | '.join(escaped)} |")
    heading = f"**The {len(worst)} worst translations** (fewest words in common with a reference)"
    return [heading, "\n".join(table)]


def worst_translations(run: Path) -> list[Translation]:
    """Return the translations with the lowest F1 of their words and those of the best reference, the worst first."""

    def overlap(row: Translation) -> float:
        words = Counter(row.hypothesis.split())
        scores = []
        for reference in row.references:
            expected = Counter(reference.split())
            common = (words & expected).total()
            scores.append(common / max(1, words.total() + expected.total()))
        return max(scores)

    wrong = [row for row in read_translations(run) if not row.exact]
    return sorted(wrong, key=overlap)[:MAX_TRANSLATIONS]


def shortened(cell: str, width: int = 160) -> str:
    """Return a text with at most ``width`` characters."""
    if len(cell) <= width:
        return cell
    return f"{cell[: width - 1]}…"


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, such as an answer; MLflow shows no more of a description."""
    sentence, separator, _ = text.partition(". ")
    return f"{sentence}." if separator else text


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
