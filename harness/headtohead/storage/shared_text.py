"""Fast parsing of records that share most of their text.

The records of a variant's runs differ only in run hash, seed and times; configuration, data and plugins are equal
and are parsed once.
"""

from __future__ import annotations

import json
from typing import Any

LONG = 256
"""Minimum length, in characters, of a field that is cached."""


class SharedText:
    """Parses JSON objects with a cache of long fields.

    Results share objects and must not be modified.
    """

    def __init__(self) -> None:
        self._cache: dict[str, dict[str, Any]] = {}

    def parse(self, text: str) -> Any:
        """Return the same value as ``json.loads``.

        Raises:
            ValueError: As ``json.loads`` does.
        """
        try:
            content = self._parse_fields(text)
        except ValueError:
            content = None
        return json.loads(text) if content is None else content

    def _parse_fields(self, text: str) -> dict[str, Any] | None:
        """Parse an object with fields at line starts, indented by one space; return None for any other text.

        A JSON string cannot contain a line break, so each line that starts with a space and a quotation mark starts
        a field of the object.
        """
        opening, *fields = text.rstrip().split('\n "')
        if opening != "{" or not fields or not fields[-1].endswith("\n}"):
            return None
        fields[-1] = fields[-1].removesuffix("\n}") + ","
        if not all(field.endswith(",") for field in fields):
            return None
        short = [field for field in fields if len(field) < LONG]
        content: dict[str, Any] = json.loads('{"' + '"'.join(short)[:-1] + "}") if short else {}
        for field in fields:
            if len(field) >= LONG:
                content |= self._field(field)
        return content if len(content) == len(fields) else None

    def _field(self, text: str) -> dict[str, Any]:
        if text not in self._cache:
            self._cache[text] = json.loads('{"' + text[:-1] + "}")
        return self._cache[text]
