"""Read the rows of a Parquet file, in a child process: a damaged file can end a process by a signal."""

from __future__ import annotations

import json
from typing import Any


def rows(path: str) -> tuple[list[str], list[list[Any]]]:
    """Return the names of the columns and the rows, with numbers as text; an index without a name is left out."""
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = {index: name for index, name in enumerate(table.column_names) if not name.startswith("__index_level_")}
    values = zip(*(map(_value, table.column(index).to_pylist()) for index in columns), strict=True)
    return [*columns.values()], [list(row) for row in values]


def _value(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    return json.dumps(value) if isinstance(value, int | float) else str(value)
