"""A loaded run as cell output: its main settings, its scores and its known pitfalls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.report.blocks import Paragraph, Span
from headtohead.report.html import html_blocks
from headtohead.report.notebook.tables import text_table, titled_list
from headtohead.storage.metrics import show

CHOICES = ("positional", "attention", "masking")
SIZES = ("d_model", "heads", "encoder_layers", "decoder_layers", "d_ff")


def run_html(record: Mapping[str, Any], metrics: Mapping[str, float | None]) -> str:
    """Return a run's title, choices and sizes, its scores on the test set and its named pitfalls.

    Args:
        record: The run's record, as in ``run.json``.
        metrics: Final metrics by name; empty where nothing was scored.
    """
    scores = [
        (name.removeprefix("test/"), show(value, name)) for name, value in metrics.items() if name.startswith("test/")
    ]
    scored = text_table(("on the test set", "score"), scores, right=(1,))
    pitfalls = (f"{pitfall['name']}: {pitfall['consequence']}" for pitfall in record.get("pitfalls") or ())
    return html_blocks(
        [
            Paragraph(Span(_title(record), "strong")),
            text_table(("choice", "value"), _choices(record["config"])),
            scored if scores else Paragraph("no scores: it was not evaluated here"),
            *titled_list("pitfalls", pitfalls),
        ],
        inline=True,
    )


def _title(record: Mapping[str, Any]) -> str:
    title, seed = record.get("title") or record.get("variant") or "run", record.get("seed")
    return str(title) if seed is None else f"{title}, seed {seed}"


def _choices(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("data", str(config["data"]["dataset"]))]
    rows += [(family, _by_role(config[family])) for family in CHOICES]
    return rows + [(name, str(config["model"][name])) for name in SIZES]


def _by_role(chosen: Mapping[str, Mapping[str, Any]]) -> str:
    names = {role: str(entry["name"]) for role, entry in chosen.items()}
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{name} ({role})" for role, name in names.items())
