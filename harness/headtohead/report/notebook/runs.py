"""Notebook output of a loaded run: its main settings, its scores and its pitfalls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.config.builder import FAMILIES
from headtohead.report.blocks import Paragraph, Span
from headtohead.report.html import html_blocks
from headtohead.report.notebook.tables import text_table, titled_list
from headtohead.storage.metrics import show
from headtohead.storage.run import RunRecord

SIZES = ("d_model", "heads", "encoder_layers", "decoder_layers", "d_ff")


def run_html(record: RunRecord, metrics: Mapping[str, float | None]) -> str:
    """Return a run's title, settings, test scores and pitfalls as HTML.

    Args:
        record: The run's record.
        metrics: Final metrics by name; empty if the run was not evaluated.
    """
    scores = [
        (name.removeprefix("test/"), show(value, name)) for name, value in metrics.items() if name.startswith("test/")
    ]
    scored = text_table(("on the test set", "score"), scores, right=(1,))
    pitfalls = (f"{pitfall.name}: {pitfall.consequence}" for pitfall in record.pitfalls)
    return html_blocks(
        [
            Paragraph(Span(f"{record.title}, seed {record.seed}", "strong")),
            text_table(("setting", "value"), _settings(record.config)),
            scored if scores else Paragraph("no scores: the run was not evaluated"),
            *titled_list("pitfalls", pitfalls),
        ],
        inline=True,
    )


def _settings(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("data", str(config["data"]["dataset"]))]
    rows += [(family, _by_role(config[family])) for family in FAMILIES]
    return rows + [(name, str(config["model"][name])) for name in SIZES]


def _by_role(entries: Mapping[str, Mapping[str, Any]]) -> str:
    names = {role: str(entry["name"]) for role, entry in entries.items()}
    if len(set(names.values())) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{name} ({role})" for role, name in names.items())
