"""The table of choices: one row for each field of the configuration in which the notebooks differ."""

from __future__ import annotations

import json
from collections.abc import Sequence

from headtohead.config.labels import label_at
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.run_config import RunConfig
from headtohead.storage.record import leaves
from headtohead_notebooks.quirks import NotebookOptions

SIZES = (
    *("model.d_model", "model.heads", "model.encoder_layers", "model.d_ff"),
    *("train.lr", "train.epochs", "train.steps", "train.batch_size"),
)
"""Fields that the page shows for every notebook, although nearly all notebooks differ in them."""


def choice_rows(configs: Sequence[RunConfig]) -> dict[str, tuple[str, ...]]:
    """Return the value of each notebook by field, in the order of an experiment file, from their configurations."""
    columns = []
    for config in configs:
        fields = config.model_dump(mode="json", exclude={"data": {"dataset", "options"}})
        labels = {}
        for family in COMPONENTS:
            roles = config.entries(family)
            labels[family] = {role: label_at(config, (family, role)) for role in roles}
        quirks = config.quirks.get("notebooks", NotebookOptions())
        fields["quirks"] = {"notebooks": quirks.model_dump(mode="json")}
        column = {}
        for name, value in leaves(fields | labels):
            column[name] = value if isinstance(value, str) else json.dumps(value)
        columns.append(column)
    rows = {}
    for name in columns[0]:
        values = tuple(column[name] for column in columns)
        if len(set(values)) > 1:
            rows[name] = values
    return rows
