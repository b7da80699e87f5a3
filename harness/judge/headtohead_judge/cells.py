"""The cells of a table as text."""

from __future__ import annotations

import pandas as pd


def single_spaced(text: str) -> str:
    """Return a text without white space at its ends, and with a single space for any other white space."""
    return " ".join(text.split())


def texts_of(column: pd.Series) -> list[str]:
    """Return the values of a column as `single_spaced` text; a missing value is an empty text.

    Values that differ by white space only are equal, as of a file whose columns are aligned by spaces.
    """
    texts = []
    for value, is_missing in zip(column.tolist(), column.isna(), strict=True):
        texts.append("" if is_missing else single_spaced(str(value)))
    return texts
