"""The table of choices: one row for each field of the configuration in which the notebooks differ."""

from __future__ import annotations

import json
from collections.abc import Sequence

from headtohead.config.labels import label_at
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage.record import leaves

SIZES = (
    *("model.d_model", "model.heads", "model.encoder_layers", "model.d_ff"),
    *("train.lr", "train.epochs", "train.steps", "train.batch_size"),
)
"""Fields that the page shows for every notebook, although nearly all notebooks differ in them."""


def choice_rows(configs: Sequence[RunConfig], registry: Registry) -> dict[str, tuple[str, ...]]:
    """Return the value of each notebook by field, in the order of an experiment file, from their configurations."""
    columns = []
    for config in configs:
        fields = config.model_dump(mode="json", exclude={"data": {"dataset", "options"}})
        labels = {
            family: {
                role: label_at(config, (family, role))
                for role in config.roles
                if role
                in type(
                    getattr(config, family)
                ).model_fields  # cross-attention has no network of its own
            }
            for family in COMPONENTS
        }
        values = leaves(fields | labels)
        columns.append(
            {name: value if isinstance(value, str) else json.dumps(value) for name, value in values}
        )
    rows = {name: tuple(column[name] for column in columns) for name in columns[0]}
    return {name: values for name, values in rows.items() if len(set(values)) > 1}
