"""Escaping of text from files, data and servers, for terminals and Markdown.

Records keep text exactly; each output escapes it. A character is hidden if it controls a terminal, reorders the text
around it, or has no width: control characters except tab and newline, bidirectional controls, invisible format and tag
characters, and lone surrogates. Letters of every script, combining marks, joiners and emoji are unchanged.
"""

from __future__ import annotations

import json
import re
from typing import Any

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, DEL and C1: the escape sequences of terminals begin with these
    r"\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    r"""Return text with hidden characters as escapes such as ``\x1b`` and ``\u202e``."""
    return _HIDDEN.sub(
        lambda match: match[0].encode("unicode_escape").decode("ascii"), text.replace("\r\n", "\n")
    )


def single_line(text: object, breaks: str = "\n") -> str:
    """Return text as one line without hidden characters; line breaks with the white space around them become spaces."""
    plain = str(text).replace("\r\n", "\n")
    if any(character in plain for character in breaks):
        lines = [line.strip() for line in re.split(f"[{breaks}]", plain)]
        plain = " ".join(line for line in lines if line)
    return visible(plain)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON for a terminal: hidden characters are JSON escapes, so a reader of the JSON gets the exact text."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def markdown_escape(text: object) -> str:
    """Return text with Markdown and HTML characters escaped, for a paragraph or a table cell."""
    plain = single_line(text, "\r\n")
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", plain)
