"""The page and the Markdown file, from their templates; all text from data is escaped here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from headtohead.figures.style import PALETTE, themed
from headtohead.report.attention import ROLES, Gallery, panel_svg, payload
from headtohead.report.content import Content
from headtohead.report.published import published_section
from headtohead.report.shapley import path_section
from headtohead.report.tuning import tuning_section
from headtohead.report.two_way import grid_section
from headtohead.storage.attention_maps import entropy, mean_distance
from headtohead.storage.metrics import show, show_p

NAMES = ("waterfall", "contrasts", "scores", "interactions", "heads", "lengths", "curves", "cost", "attention")
"""The figures that a report may have, in the order in which it shows them."""

OPTIONAL = ("description", "file", "text", "created", "notes", "versions")
DATA = (
    "dataset",
    "languages",
    "split",
    "leak",
    "leaky",
    "counts",
    "dropped",
    "vocabulary",
    "longest",
    "unk_rate",
    "normalise",
    "tokens",
    "bag_of_words_ceiling",
    "licence",
    "citation",
    "fingerprint",
    "notes",
)
"""Fields of the records that may be absent; the templates refuse to guess at any other."""


def html_page(content: Content, figures: Mapping[str, str]) -> str:
    """Return the whole report as one self-contained page."""
    return (
        _environment(True)
        .get_template("index.html.j2")
        .render(
            **_common(content),
            figures={name: Markup(themed(figures[name])) if name in figures else None for name in NAMES},
            css=Markup(_asset("report.css")),
            script=Markup(_asset("report.js")),
            maps=_json(payload(content.gallery)) if content.gallery else None,
            panels=_panels(content.gallery) if content.gallery else [],
            heads=_heads(content.gallery) if content.gallery else [],
        )
    )


def markdown_page(content: Content, figures: Mapping[str, str]) -> str:
    """Return the report as Markdown, with links to the figures beside it."""
    text = (
        _environment(False)
        .get_template("report.md.j2")
        .render(
            **_common(content),
            figures={name: name in figures for name in NAMES},
            heads=_heads(content.gallery) if content.gallery else [],
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _common(content: Content) -> dict[str, Any]:
    record = content.experiment
    data = record.get("data") or {}
    return {
        "c": content,
        "e": {**dict.fromkeys(OPTIONAL), **record},
        "d": {**dict.fromkeys(DATA), **data},
        "path": path_section(content.analysis),
        "grid": grid_section(content.analysis),
        "tuning": tuning_section(content.analysis),
        "published": published_section(content.analysis),
    }


def markdown_escape(text: object) -> str:
    """Return text that Markdown shows as it is, in a paragraph or a table cell."""
    plain = re.sub(r"\s*[\r\n]+\s*", " ", str(text))
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", plain)


@cache
def _environment(html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("headtohead.report"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["md"] = markdown_escape
    environment.filters["percent"] = lambda part: f"{100 * float(part):.1f} %"
    environment.filters["signed"] = lambda value: show(value, "test/bleu", signed=True)
    environment.filters["p"] = show_p
    environment.filters["hue"] = _hue
    environment.filters["parts"] = _parts
    environment.filters["prose"] = _prose
    environment.filters["tame"] = _tame
    return environment


def _hue(colour: str) -> str:
    """Return a palette colour as the page's variable, which dark pages lighten."""
    return f"var(--c{PALETTE.index(colour) + 1}, {colour})"


def _parts(title: str) -> Markup:
    """Return a variant's title that breaks between its values, never within one."""
    pieces = [Markup('<span class="nw">{}</span>').format(part) for part in title.split(" · ")]
    return Markup(" · ").join(pieces)


def _prose(text: str) -> Markup:
    """Return an author's Markdown as HTML: no raw HTML, and no pictures to fetch."""
    from markdown_it import MarkdownIt

    return Markup(MarkdownIt("commonmark", {"html": False}).disable("image").render(text))


def _tame(text: str) -> str:
    """Return an author's Markdown without HTML in it."""
    return text.strip().replace("&", "&amp;").replace("<", "&lt;")


def _asset(name: str) -> str:
    return (resources.files("headtohead.report") / "templates" / name).read_text("utf-8")


def _json(value: Any) -> Markup:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _panels(found: Gallery) -> list[dict[str, Any]]:
    """Return the maps the page opens with, drawn here so that they show without scripts."""
    colours = {"ink": "var(--ink)", "muted": "var(--muted)", "plus": "var(--c1)", "minus": "var(--c2)"}
    panels = []
    for shown in found.shown:
        weights = shown.weights(found.probe, found.role)
        if weights is None or found.layer >= len(weights) or found.head >= weights.shape[1]:
            panels.append({"title": shown.title, "seed": shown.seed, "svg": None, "numbers": ""})
            continue
        head = weights[found.layer, found.head]
        queries, keys = shown.maps[found.probe].tokens(found.role)
        panels.append(
            {
                "title": shown.title,
                "seed": shown.seed,
                "svg": Markup(panel_svg(head, queries, keys, colours=colours)),
                "numbers": f"entropy {entropy(head):.2f}, distance {mean_distance(head):.2f}",
            }
        )
    return panels


def _heads(found: Gallery) -> list[dict[str, Any]]:
    """Return entropy and distance of every head of the first probe, a row per variant and role."""
    rows = []
    for shown in found.shown:
        maps = shown.maps[found.probe].weights
        for role, weights in ((role, maps[role]) for role in ROLES if role in maps):
            spread, far = entropy(weights), mean_distance(weights)
            rows.append(
                {
                    "title": shown.title,
                    "role": role,
                    "seed": shown.seed,
                    "heads": [
                        f"{spread[layer, head]:.2f} / {far[layer, head]:.2f}"
                        for layer in range(weights.shape[0])
                        for head in range(weights.shape[1])
                    ],
                }
            )
    return rows
