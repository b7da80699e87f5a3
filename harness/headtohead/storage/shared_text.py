"""Parsing records that share most of their text, each shared piece once.

The records of a variant's runs differ in their key, their seed and some times; configuration, data
and plugins are the same in all of them.
"""

from __future__ import annotations

import json
from typing import Any

LONG = 256
"""Characters from which on a field is worth remembering."""


class SharedText:
    """Parses JSON mappings, and long fields that came before by what they were then.

    What it returns is shared, and not to be changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def parse(self, text: str) -> Any:
        """Return what ``json.loads`` returns.

        Raises:
            ValueError: As ``json.loads`` does.
        """
        try:
            found = self._by_field(text)
        except ValueError:
            found = None
        return json.loads(text) if found is None else found

    def _by_field(self, text: str) -> dict[str, Any] | None:
        """Parse a mapping whose fields begin lines, indented by one; None if it is no such text.

        No string of JSON holds a line's end. So where all that stands between two such beginnings
        is one whole field, the text is those fields, however the rest of it is laid out.
        """
        opening, *fields = text.rstrip().split('\n "')
        if opening != "{" or not fields or not fields[-1].endswith("\n}"):
            return None
        fields[-1] = fields[-1].removesuffix("\n}") + ","
        if not all(field.endswith(",") for field in fields):
            return None
        short = [field for field in fields if len(field) < LONG]
        found: dict[str, Any] = json.loads('{"' + '"'.join(short)[:-1] + "}") if short else {}
        for field in fields:
            if len(field) >= LONG:
                found |= self._field(field)
        return found if len(found) == len(fields) else None

    def _field(self, text: str) -> dict[str, Any]:
        if text not in self._known:
            self._known[text] = json.loads('{"' + text[:-1] + "}")
        return self._known[text]
