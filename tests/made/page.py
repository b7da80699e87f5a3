"""What a browser sees of a page."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """The elements of a page in order, its text outside scripts and styles, its scripts, and the cells of its tables.

    As in a browser without a style sheet, a ``div`` begins a new line of its cell.

    Raises:
        AssertionError: If an element is not closed.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "div" and self._is_in_cell:
            self.rows[-1][-1] += "\n"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inner = self._open[-1] if self._open else ""
        if inner == "script":
            self.scripts[-1] += data
        elif inner != "style":
            self.text += data
        if self._is_in_cell:
            self.rows[-1][-1] += data

    @property
    def _is_in_cell(self) -> bool:
        return not {"td", "th"}.isdisjoint(self._open)
