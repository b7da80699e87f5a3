"""Print a Parquet file from standard input as JSON: the names of its columns, then its rows.

``python -m headtohead.analysis.parquet_rows`` limits its own memory.
"""

from __future__ import annotations

import json
import resource
import sys

MAX_MEMORY = 8 * 2**30
"""Maximum address space in bytes."""


def main() -> None:
    """Print the table; an index that pandas stored without a name is left out."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or hard > MAX_MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, hard))
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(pyarrow.BufferReader(sys.stdin.buffer.read()))
    columns = {index: name for index, name in enumerate(table.column_names) if not name.startswith("__index_level_")}
    rows = zip(*(table.column(index).to_pylist() for index in columns), strict=True)
    json.dump([[*columns.values()], *rows], sys.stdout, default=str)


if __name__ == "__main__":
    main()
