"""The model card of an exported run: Markdown with YAML front matter in the style of Hugging Face."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from headtohead.analysis.wording import ends
from headtohead.escaping import markdown_code, visible, visible_values
from headtohead.report.data import corpus_text, data_properties, layers_text, reading_of
from headtohead.report.render import environment, markdown_table, tidy_markdown
from headtohead.report.section import table
from headtohead.storage.experiment import examples_of, leaked_part
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show, show_count
from headtohead.storage.results import ResultsRecord
from headtohead.storage.run import RunRecord

TEST = "test/"
OWN_DISTRIBUTION = "headtohead"


def model_card(
    record: RunRecord, results: ResultsRecord, frames: Frames | None, *, translates: bool
) -> str:
    """Return the model card of a run: Markdown after a YAML front matter, with control characters made visible.

    Its scores are the finite metrics of the test set. Plugins that are part of headtohead are not listed.

    Args:
        record: The run's record.
        results: The run's results; without scores for an imported checkpoint.
        frames: The study of the run, for scores over all seeds; None if it is not there. A study that lacks the run's
            variant adds no scores; whether it is the study of the run is not checked.
        translates: Whether the model can translate sentences.
    """
    scores = {}
    for name, value in sorted(results.metrics.items()):
        if name.startswith(TEST) and value is not None and math.isfinite(value):
            scores[name] = float(value)
    signatures = {}
    for name, signature in sorted(results.signatures.items()):
        signatures[readable(TEST + name)] = signature
    plugins = []
    for plugin in record.plugins:
        if plugin.distribution != OWN_DISTRIBUTION:
            plugins.append(f"{plugin.family} {plugin.name} ({plugin.distribution})")
    score_rows = _score_rows(record, scores, frames)
    has_encoder = "encoder" in record.config.roles
    template = environment("headtohead.report").get_template("model_card.md.jinja")
    card = template.render(
        record=record,
        results=results,
        frames=frames,
        translates=translates,
        examples=examples_of(record.data),
        corpus=corpus_text(record.data),
        layers=layers_text(record.config.model, reading_of(record.data)),
        leaked=leaked_part(record.data) if record.data.get("leak") else "",
        scores=markdown_table(table(score_rows)),
        sentences=sum(bucket["n"] for bucket in results.buckets),
        signatures=signatures,
        properties=data_properties(record.data, has_encoder=has_encoder),
        plugins=", ".join(plugins),
        parameters=show_count(record.counts.total),
        origin=_origin(record),
    )
    metadata = visible_values(_front_matter(record, scores, translates))
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=1000)
    return visible(f"---\n{front}---\n\n{tidy_markdown(card)}")


def _score_rows(
    record: RunRecord, scores: Mapping[str, float], frames: Frames | None
) -> list[dict[str, str]]:
    """Return a row per metric: the score of the run, and the mean over the seeds of its variant.

    The mean, its interval and the number of seeds are left out without a study, and if the study lacks the variant.

    Args:
        record: The run's record.
        scores: The run's test scores by metric.
        frames: The study of the run, or None.
    """
    rows = []
    for name, value in scores.items():
        row = {"metric": readable(name)}
        row[f"this model, seed {record.seed}"] = show(value, name)
        if frames is not None and record.variant in frames.by_slug:
            summary = frames.summary(record.variant, name)
            row["mean over seeds"] = show(summary.mean, name)
            row["95 % interval"] = "–"
            if math.isfinite(summary.low):
                row["95 % interval"] = ends(summary.low, summary.high, name)
            row["seeds"] = str(summary.n)
        rows.append(row)
    return rows


def _origin(record: RunRecord) -> dict[str, str]:
    """Return what made the run, by name, each as Markdown code: experiment, variant, seed, steps, hash and versions.

    Versions that were not recorded are left out.
    """
    origin: dict[str, Any] = {}
    origin["experiment"] = record.experiment
    origin["variant"] = record.variant
    origin["seed"] = record.seed
    origin["steps"] = f"{record.steps:,}"
    origin["run hash"] = record.run_hash
    for name in (OWN_DISTRIBUTION, "torch", "git_commit"):
        version = record.versions.get(name)
        if version:
            origin[name.replace("_", " ")] = version
    return {name: markdown_code(value) for name, value in origin.items()}


def _front_matter(
    record: RunRecord, scores: Mapping[str, float], translates: bool
) -> dict[str, object]:
    """Return the metadata that the hub of Hugging Face reads; without scores, it has no ``model-index``.

    Args:
        record: The run's record. Its texts are unchanged; the caller makes them visible and escapes them for YAML.
        scores: Finite test scores by metric.
        translates: Whether the model can translate sentences; only then it has a ``pipeline_tag``.

    Raises:
        KeyError: If the data record has no field ``dataset``.
    """
    dataset = record.data["dataset"]
    licence = record.data.get("licence") or "not stated"
    front: dict[str, object] = {}
    front["library_name"] = OWN_DISTRIBUTION
    front["license"] = "other"
    front["license_name"] = f"that of the data: {licence}"
    if translates:
        front["pipeline_tag"] = "translation"
    front["datasets"] = [dataset]
    front["tags"] = [OWN_DISTRIBUTION, "transformer"]
    if not scores:
        return front
    metrics = []
    for name, value in scores.items():
        metric = {"type": name.removeprefix(TEST), "name": readable(name), "value": value}
        metrics.append(metric)
    task = "translation" if translates else "other"
    result = {
        "task": {"type": task},
        "dataset": {"name": dataset, "type": dataset, "split": "test"},
        "metrics": metrics,
    }
    front["model-index"] = [{"name": record.title, "results": [result]}]
    return front
