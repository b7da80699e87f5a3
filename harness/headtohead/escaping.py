"""Escaping of text from files, data and servers, for pages and spreadsheets.

`headtohead_judge.escaping` defines which characters are hidden, and escapes text for terminals and Markdown.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Mapping
from typing import Any

from headtohead_judge.escaping import json_text as json_text
from headtohead_judge.escaping import markdown_escape as markdown_escape
from headtohead_judge.escaping import single_line as single_line
from headtohead_judge.escaping import visible as visible

MAX_MARKDOWN = 50_000
"""Maximum number of characters of a text that is rendered as Markdown; the parser reads 25,000 per second."""
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


def visible_values(value: Any) -> Any:
    """Return JSON data in which every text is `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {name: visible_values(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [visible_values(inner) for inner in value]
    return value


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters, shortened in the middle.

    >>> shortened("without positions", 9)
    'with…ions'
    """
    if len(text) <= width:
        return text
    half = (width - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


class VisibleFormatter(logging.Formatter):
    """Formats log records without hidden characters."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def markdown_code(text: object) -> str:
    """Return text as a Markdown code span, or escaped if it contains characters that end a span or a table cell."""
    plain = single_line(text)
    if re.search(r"[`|<]", plain):
        return markdown_escape(plain)
    return f"`{plain}`"


def safe_markdown(text: str) -> str:
    """Return Markdown without raw HTML, images and unsafe links (`is_safe_link`).

    Images become literal text. If an unsafe link remains, all links become literal text.
    """
    if len(text) > MAX_MARKDOWN:
        text = f"{text[:MAX_MARKDOWN]}…"
    source = visible(text).strip()
    source = source.replace("&", "&amp;").replace("<", "&lt;")
    if _has_unsafe_targets(source):
        source = source.replace("![", "!&#91;")
    if _has_unsafe_targets(source):
        # Entities never delimit a link, whatever precedes them.
        source = source.replace("[", "&#91;").replace("]", "&#93;")
    return source


def is_safe_link(target: str) -> bool:
    """Return whether a link is relative or has the scheme http, https or mailto."""
    # Browsers ignore some of these characters in a scheme.
    target = re.sub(r"[\x00-\x20\x7f-\xa0]", "", target)
    before_path, *_ = re.split(r"[/?#\\]", target, maxsplit=1)
    scheme, colon, _ = before_path.partition(":")
    if colon:
        return scheme.lower() in ("http", "https", "mailto")
    return re.match(r"[/\\]{2}", target) is None


def _has_unsafe_targets(markdown: str) -> bool:
    """Return whether Markdown has an image, or a link that is not safe."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False})
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    environment: dict[str, Any] = {}
    targets: list[str] = []
    for block in parser.parse(markdown, environment):
        for token in block.children or ():
            if token.type == "image":
                return True
            if token.type == "link_open":
                targets.append(str(token.attrGet("href")))
    for reference in environment.get("references", {}).values():
        targets.append(reference["href"])
    return not all(is_safe_link(target) for target in targets)


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "`": r"\textasciigrave{}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row they begin an argument
    "\u2212": "$-$", "\u2013": r"\textendash{}", "\u2014": r"\textemdash{}", "\u2026": r"\ldots{}",
    "\u00b7": r"\textperiodcentered{}",
    "\u00d7": r"$\times$", "\u2192": r"$\rightarrow$", "\u2264": r"$\leq$", "\u2265": r"$\geq$", "\u00a0": "~",
}  # fmt: skip
_LATEX_TABLE = str.maketrans(_LATEX)


def latex_escape(text: object) -> str:
    """Return text as a line of LaTeX that contains no commands of the text.

    Letters are unchanged. Those outside Latin need LuaLaTeX or XeLaTeX.
    """
    line = single_line(text).replace("\t", " ")
    escaped = line.translate(_LATEX_TABLE)
    return re.sub("-(?=-)", "-{}", escaped)  # a sequence of hyphens is a dash


def spreadsheet_text(text: str) -> str:
    """Return the text of a CSV cell, with an apostrophe in front if a spreadsheet would evaluate it as a formula."""
    # Excel also accepts the full-width forms.
    if text.startswith(tuple("=+-@\t\r\n＝＋－＠")) and not _PLAIN_NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def content_policy(*scripts: str) -> str:
    """Return the Content-Security-Policy of a page that loads nothing and executes only these inline scripts."""
    sources = []
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
        sources.append(f"'sha256-{digest.decode('ascii')}'")
    allowed = " ".join(sources) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
