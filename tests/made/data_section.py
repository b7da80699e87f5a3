"""The section ``data`` of a configuration, of some fields."""

from typing import Any

from headtohead.config.validation_errors import parse_options
from headtohead.plugins.registry import find_dataset
from headtohead.schema.run_config import DataConfig


def data_config(**fields: Any) -> DataConfig:
    """Return the section ``data`` with these fields, completed by the defaults of the dataset."""
    name = fields.get("dataset", DataConfig().dataset)
    dataset = find_dataset(name)
    fields["options"] = parse_options(dataset.Options, fields.get("options", {}), name)
    defaults = {
        "split": dataset.splits[0],
        "normalise": dataset.normalise,
        **dataset.defaults.get("data", {}),
    }
    return DataConfig(**defaults | fields)
