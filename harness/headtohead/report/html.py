"""Render blocks as HTML: a self-contained page, or a fragment for notebook output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, assert_never

from markupsafe import Markup

from headtohead.escaping import MAX_MARKDOWN, content_policy, is_safe_link, visible, visible_values
from headtohead.figures.style import PALETTE, themed
from headtohead.report.blocks import (
    AttentionMaps,
    Block,
    BulletList,
    CodeBlock,
    Column,
    Contents,
    DataTable,
    Definitions,
    Details,
    Heading,
    Link,
    NamedFigure,
    Paragraph,
    Prose,
    SentenceTranslations,
    Span,
    TableCell,
    TableRow,
    Text,
    TranslationOutput,
    VariantTitle,
    VerdictLabel,
)

_PAGE = Markup("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{css}</style>
</head>
<body>
<main>
<div class="kicker">{kicker}</div>
{body}
</main>
{script}</body>
</html>
""")

_SPANS = {
    "strong": Markup("<b>{}</b>"),
    "emphasis": Markup("<em>{}</em>"),
    "code": Markup("<code>{}</code>"),
    "alarm": Markup('<span class="alarm">{}</span>'),
    "negative": Markup('<span class="minus">{}</span>'),
}
_INLINE_PARAGRAPHS = {"answer": Markup('<p style="font-size: 1.15em">{}</p>'), "banner": Markup("<p><b>{}</b></p>")}
_PARAGRAPHS = {
    "body": Markup("<p>{}</p>"),
    "answer": Markup('<p class="answer">{}</p>'),
    "banner": Markup('<div class="banner" role="alert">{}</div>'),
    "note": Markup('<p class="note">{}</p>'),
    "footer": Markup('<footer class="small">{}</footer>'),
}


def html_page(blocks: Sequence[Block], figures: Mapping[str, str], *, title: str, kicker: str) -> str:
    """Return a self-contained page.

    Args:
        blocks: The blocks of the report.
        figures: SVG by the name of the `NamedFigure` blocks.
        title: Title of the browser window.
        kicker: Line above the first heading.
    """
    interactive = any(isinstance(block, AttentionMaps) for block in blocks)
    scripts = [_asset("report.js")] if interactive else []
    page = _PAGE.format(
        policy=content_policy(*scripts),
        title=title,
        css=Markup(_asset("report.css")),
        kicker=kicker,
        body=Markup(html_blocks(blocks, figures)),
        script=Markup().join(Markup("<script>{}</script>\n").format(Markup(script)) for script in scripts),
    )
    return visible(str(page))


def html_blocks(blocks: Sequence[Block], figures: Mapping[str, str] | None = None, *, inline: bool = False) -> str:
    """Return blocks as HTML; with ``inline``, for notebook output without a style sheet."""
    renderer = _Renderer(figures or {}, inline, [block for block in blocks if isinstance(block, Heading)])
    return visible(str(renderer.blocks(blocks)))


class _Renderer:
    def __init__(self, figures: Mapping[str, str], inline: bool, headings: Sequence[Heading]) -> None:
        self.figures, self.inline, self.headings = figures, inline, headings

    def blocks(self, blocks: Iterable[Block]) -> Markup:
        return Markup("\n").join(self.block(block) for block in blocks)

    def block(self, block: Block) -> Markup:
        match block:
            case Heading(level, text, anchor):
                attributes = _attributes(id=anchor)
                return Markup("<h{}{}>{}</h{}>").format(level, attributes, text, level)
            case Contents():
                return self.contents()
            case Paragraph(text, role):
                form = _INLINE_PARAGRAPHS.get(role, _PARAGRAPHS["body"]) if self.inline else _PARAGRAPHS[role]
                return form.format(_text(text))
            case Prose(markdown):
                return Markup('<div class="prose">{}</div>').format(_prose(markdown))
            case BulletList(items):
                lines = Markup("\n").join(Markup("<li>{}</li>").format(_text(item)) for item in items)
                return Markup('<ul class="facts">\n{}\n</ul>').format(lines)
            case Definitions(items):
                pairs = (Markup("<dt>{}</dt><dd>{}</dd>").format(term, _text(text)) for term, text in items)
                return Markup("<dl>\n{}\n</dl>").format(Markup("\n").join(pairs))
            case DataTable():
                return self.table(block)
            case NamedFigure():
                return self.figure(block)
            case CodeBlock(text):
                return Markup("<pre>{}</pre>").format(text)
            case AttentionMaps():
                return self.attention_maps(block)
            case SentenceTranslations(source, references, outputs):
                return _translations(source, references, outputs)
            case Details(summary, inner):
                return Markup("<details><summary>{}</summary>\n{}</details>").format(summary, self.blocks(inner))
            case _:
                assert_never(block)

    def contents(self) -> Markup:
        named = [heading for heading in self.headings if heading.navigation]
        links = (Markup('<a href="#{}">{}</a>').format(heading.anchor, heading.navigation) for heading in named)
        return Markup("<nav>\n{}\n</nav>").format(Markup("\n").join(links))

    def figure(self, figure: NamedFigure) -> Markup:
        caption = Markup("<figcaption>{}</figcaption>").format(figure.caption) if figure.caption else Markup()
        if self.inline:
            style = "background: white; max-width: 960px; margin: 0"
            return Markup('<figure style="{}">{}{}</figure>').format(style, self.svg(figure.name), caption)
        narrow = f"{figure.name}-narrow"
        plot = Markup('<div class="plot{}">{}</div>').format(" wide" * (narrow in self.figures), self.svg(figure.name))
        if narrow in self.figures:
            plot += Markup('<div class="narrow">{}</div>').format(self.svg(narrow))
        return Markup("<figure>{}{}</figure>").format(plot, caption)

    def svg(self, name: str) -> Markup:
        return Markup(themed(self.figures[name]))

    def attention_maps(self, block: AttentionMaps) -> Markup:
        return Markup(
            '<div class="controls" id="choose" hidden></div>\n'
            '<noscript><p class="note">{}</p></noscript>\n'
            '<div class="panels" id="panels"><div class="plot natural">{}</div></div>\n'
            '<script type="application/json" id="maps">{}</script>'
        ).format(block.figure.caption, self.svg(block.figure.name), _json(block.data))

    def table(self, table: DataTable) -> Markup:
        head = Markup().join(self.heading(column) for column in table.columns)
        body = Markup("\n").join(self.row(row, table.columns) for row in table.rows)
        attributes = _attributes(**{"class": "grid" * table.grid})
        fold = Markup('<details class="fold"><summary>{}</summary></details>').format(table.folded)
        return (fold if table.folded else Markup()) + Markup(
            '<div class="scroll"><table{}>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody></table></div>'
        ).format(attributes, head, body)

    def heading(self, column: Column) -> Markup:
        text = Markup("<br>").join(column.heading.split("\n"))
        return Markup("<th{}>{}</th>").format(self.look(column, column.tooltip), text)

    def row(self, row: TableRow, columns: Sequence[Column]) -> Markup:
        cells = [self.cell(cell, column) for cell, column in zip(row.cells, columns, strict=False)]
        if missing := len(columns) - len(row.cells):
            cells.append(Markup('<td colspan="{}"></td>').format(missing))
        kind = _attributes(**{"class": "baseline" * row.emphasised})
        return Markup("<tr{}>{}</tr>").format(kind, Markup().join(cells))

    def cell(self, cell: TableCell, column: Column) -> Markup:
        attributes = self.look(column, cell.tooltip, cell.shade)
        notes = Markup().join(
            Markup('<span class="{}">{}</span>').format(note.role, _text(note.text)) for note in cell.notes
        )
        if any(note.role == "details" for note in cell.notes):
            content = Markup("<details><summary>{}</summary>{}</details>").format(_text(cell.text), notes)
        else:
            content = _text(cell.text) + notes
        return Markup("<td{}>{}</td>").format(attributes, content)

    def look(self, column: Column, tooltip: str, shade: int = 0) -> Markup:
        style = f"text-align: {column.align}" if self.inline else f"--shade: {shade}%" if shade else ""
        classes = "" if self.inline else " ".join(["left"] * (column.align == "left") + ["wrap"] * column.wrap)
        return _attributes(**{"class": classes, "title": tooltip, "style": style})


def _text(text: Text) -> Markup:
    if isinstance(text, tuple):
        return Markup().join(_text(piece) for piece in text)
    match text:
        case str():
            return Markup("{}").format(text)
        case Span(content, style):
            return _SPANS[style].format(content)
        case Link(content, target):
            return Markup('<a href="{}">{}</a>').format(target, content)
        case VerdictLabel(content, kind):
            return Markup('<span class="verdict {}">{}</span>').format(kind, content)
        case VariantTitle(title, colour):
            return _title(title, colour)
        case _:
            assert_never(text)


def _title(title: str, colour: str | None) -> Markup:
    """Return a title with line breaks only between its values."""
    parts = Markup(" · ").join(Markup('<span class="nw">{}</span>').format(part) for part in title.split(" · "))
    if colour is None:
        return parts
    variable = f"var(--c{PALETTE.index(colour) + 1}, {colour})"
    return Markup('<span class="chip" style="color: {}"></span>{}').format(variable, parts)


def _translations(source: str, references: str, outputs: Sequence[TranslationOutput]) -> Markup:
    return Markup(
        '<div class="sample"><div><div class="source">{}</div><div class="small">{}</div></div>\n<ul>\n{}\n</ul></div>'
    ).format(source, references, Markup("\n").join(map(_output, outputs)))


def _output(output: TranslationOutput) -> Markup:
    variants = (Markup("<span>{}</span>").format(_text(variant)) for variant in output.variants)
    css_class, mark = ("right", "✓") if output.exact else ("wrong", "✗")
    return Markup('<li><span class="{}">{}</span><span>{}</span><span class="small who">{}</span></li>').format(
        css_class, mark, output.hypothesis, Markup("").join(variants)
    )


def _attributes(**values: str) -> Markup:
    """Return the HTML attributes with a nonempty value."""
    return Markup().join(Markup(' {}="{}"').format(name, value) for name, value in values.items() if value)


def _prose(text: str) -> Markup:
    """Return Markdown as HTML, with raw HTML escaped, and without images and unsafe links."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable("image")
    parser.validateLink = is_safe_link  # type: ignore[assignment, method-assign]
    return Markup(parser.render(text[:MAX_MARKDOWN]))


def _json(value: Any) -> Markup:
    """Return JSON that is safe in a script element."""
    text = json.dumps(visible_values(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _asset(name: str) -> str:
    return (resources.files("headtohead.report") / "templates" / name).read_text("utf-8")
