"""The model card of an exported run: Markdown with YAML front matter in the style of Hugging Face."""

from __future__ import annotations

import math
from collections.abc import Mapping

import yaml

from headtohead.escaping import visible_values
from headtohead.report.blocks import (
    Block,
    BulletList,
    CodeBlock,
    Column,
    DataTable,
    Definitions,
    Heading,
    Paragraph,
    Span,
    TableCell,
    TableRow,
    Text,
)
from headtohead.report.data_description import data_items
from headtohead.report.markdown import markdown_page
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show, show_count
from headtohead.storage.results import ResultsRecord
from headtohead.storage.run import RunRecord

TEST = "test/"
OWN = "headtohead"


def model_card(record: RunRecord, results: ResultsRecord, frames: Frames | None, *, translates: bool) -> str:
    """Return the text of the model card.

    Args:
        record: The run's record.
        results: The run's results; without scores for an imported checkpoint.
        frames: The study of the run, for scores over all seeds; None if it is not there.
        translates: Whether the model can translate sentences.
    """
    blocks: list[Block] = [
        Heading(1, f"{record.title}, seed {record.seed}"),
        *_summary(record, frames),
        *_scores(record, results, frames),
        Heading(2, "Data"),
        Definitions(tuple(data_items(record.data))),
        *_limits(record, translates),
        *_use(record, translates),
        *_origin(record),
    ]
    front = yaml.safe_dump(
        visible_values(_front_matter(record, results, translates)), sort_keys=False, allow_unicode=True, width=1000
    )
    return f"---\n{front}---\n\n{markdown_page(blocks)}"


def _front_matter(record: RunRecord, results: ResultsRecord, translates: bool) -> dict[str, object]:
    scores = _test_scores(results)
    result = {
        "task": {"type": "translation" if translates else "other"},
        "dataset": {"name": record.data["dataset"], "type": record.data["dataset"], "split": "test"},
        "metrics": [
            {"type": name.removeprefix(TEST), "name": readable(name), "value": value} for name, value in scores.items()
        ],
    }
    return {
        "library_name": OWN,
        "license": "other",
        "license_name": f"that of the data: {record.data.get('licence') or 'not stated'}",
        **({"pipeline_tag": "translation"} if translates else {}),
        "datasets": [record.data["dataset"]],
        "tags": [OWN, "transformer"],
        **({"model-index": [{"name": record.title, "results": [result]}]} if scores else {}),
    }


def _test_scores(results: ResultsRecord) -> Mapping[str, float]:
    return {
        name: float(value)
        for name, value in sorted(results.metrics.items())
        if name.startswith(TEST) and value is not None and math.isfinite(value)
    }


def _summary(record: RunRecord, frames: Frames | None) -> list[Block]:
    config = record.config
    model = config["model"]
    languages = " to ".join(record.data.get("languages") or ())
    sizes = (
        f"width {model['d_model']}, {model['heads']} heads, {model['encoder_layers']} + {model['decoder_layers']} "
        f"layers, feed-forward {record.d_ff}, {show_count(record.counts.total)} parameters"
    )
    text = f"A Transformer trained with headtohead on {record.data['dataset']}, {languages}: {sizes}."
    if record.imported is not None:
        text = f"A checkpoint of the notebook of recipe {record.recipe}, imported into headtohead: {sizes}."
    blocks: list[Block] = [Paragraph(text)]
    if frames is not None and record.imported is None:
        blocks.append(Paragraph(f"It is a run of the experiment {frames.name}: {frames.record.question}"))
    return blocks


def _scores(record: RunRecord, results: ResultsRecord, frames: Frames | None) -> list[Block]:
    """Return the scores of this run, and their mean over the seeds of the same variant."""
    scores = _test_scores(results)
    if not scores:
        return [Heading(2, "Scores"), Paragraph("None: the model was not evaluated by headtohead.")]
    columns = [Column("metric", "left"), Column(f"this model, seed {record.seed}")]
    summaries = {}
    if frames is not None and record.variant in frames.by_slug:
        summaries = {name: frames.summary(record.variant, name) for name in scores}
        columns += [Column("mean over seeds"), Column("95 % interval"), Column("seeds")]
    rows = []
    for name, value in scores.items():
        cells = [readable(name), show(value, name)]
        if summary := summaries.get(name):
            interval = f"{show(summary.low, name)} to {show(summary.high, name)}" if math.isfinite(summary.low) else "–"
            cells += [show(summary.mean, name), interval, str(summary.n)]
        rows.append(TableRow(tuple(map(TableCell, cells))))
    pairs = record.data.get("counts", {}).get("test")
    note = f"On {pairs:,} test pairs of the dataset. " if pairs else "On the test set. "
    sentences = sum(bucket["n"] for bucket in results.buckets)
    if pairs and results.signatures and sentences != pairs:
        note += f"Translations are scored on {sentences:,} source sentence{'s' * (sentences != 1)}. "
    note += "The score of a single seed varies with the seed: cite the mean and its interval for the method."
    signatures = [f"{readable(name)}: {signature}" for name, signature in sorted(results.signatures.items())]
    blocks: list[Block] = [Heading(2, "Scores"), DataTable(tuple(columns), tuple(rows)), Paragraph(note)]
    return [*blocks, *([BulletList(tuple(signatures))] if signatures else [])]


def _limits(record: RunRecord, translates: bool) -> list[Block]:
    data = record.data
    items: list[Text] = []
    if pairs := data.get("counts", {}).get("train"):
        items.append(f"Trained on {pairs:,} pairs of a single dataset; other text was not tested.")
    if longest := data.get("longest", {}).get("source"):
        items.append(f"The longest source has {longest} tokens; longer sentences were not tested.")
    if data.get("leaky"):
        leak = 100 * float(data["leak"])
        items.append(f"LEAKY: the source of {leak:.1f} % of the test pairs is also in the training set.")
    if record.order_invariant:
        items.append("The encoder is order-invariant: it cannot distinguish sentences with the same words.")
    if not translates:
        items.append("The model cannot translate new sentences; it computes logits and attention weights.")
    items += [f"{pitfall.name}: {pitfall.consequence}" for pitfall in record.pitfalls]
    items.append("A research model for the comparison of components, not for production.")
    return [Heading(2, "Limits"), BulletList(tuple(items))]


def _use(record: RunRecord, translates: bool) -> list[Block]:
    lines = ["import headtohead as h2h", "", 'model = h2h.load("path/of/this/folder")']
    if translates:
        lines.append('model.translate(["a sentence"])')
    lines += ["model.logits(source_ids, target_ids)", "model.model      # the torch module, with a member dimension"]
    blocks: list[Block] = [Heading(2, "Use"), CodeBlock("\n".join(lines), "python")]
    others = [plugin for plugin in record.plugins if plugin.distribution != OWN]
    if others:
        names = ", ".join(f"{plugin.family} {plugin.name} ({plugin.distribution})" for plugin in others)
        blocks.append(Paragraph(f"Requires plugins that are not part of headtohead: {names}."))
    files = "config.json has the complete configuration and vocabulary.json the words by id; both are plain JSON."
    return [*blocks, Paragraph(files)]


def _origin(record: RunRecord) -> list[Block]:
    init_from = record.config.get("init_from")
    versions = {name: str(value) for name, value in record.versions.items() if name in (OWN, "torch", "git_commit")}
    items: list[tuple[str, Text]] = [
        ("experiment", record.experiment),
        ("variant", record.variant),
        ("seed", str(record.seed)),
        ("steps", f"{record.steps:,}"),
        ("run hash", Span(record.run_hash, "code")),
        *([("initial weights", f"those of run {init_from['run']}")] if init_from else []),
        *((name.replace("_", " "), value) for name, value in versions.items()),
    ]
    return [Heading(2, "Origin"), Definitions(tuple(items))]
