"""Mark committed reports as withdrawn: their numbers follow rules that no longer hold, or their claim is wrong.

    python benchmarks/withdrawn.py

``reports/withdrawn.yaml`` has the reason by name of a report. This script writes the reason as the first sentence of
``report.md`` and ``index.html`` of these reports, removes the sentence of reports that are no longer in the file, and
writes ``SHA256SUMS`` again. The other benchmarks name withdrawn reports and skip their numbers.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

REPORTS = Path(__file__).parents[1] / "reports"
FILE = "withdrawn.yaml"
SENTENCE = "Withdrawn: {reason}"
MARKDOWN = re.compile(r"> \*\*Withdrawn: [^\n]*\*\*\n\n")
PAGE = re.compile(r'<div class="banner" role="alert">Withdrawn: [^\n]*</div>\n')


def withdrawn(reports: Path = REPORTS) -> dict[str, str]:
    """Return the reasons by name of the withdrawn reports; empty without a file."""
    file = reports / FILE
    if not file.is_file():
        return {}
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")) or {})


def reason_of(folder: Path) -> str:
    """Return why a report is withdrawn; empty for other reports."""
    resolved = folder.resolve()
    for reports in resolved.parents:
        if (reports / FILE).is_file():
            name = resolved.relative_to(reports).as_posix()
            return withdrawn(reports).get(name, "")
    return ""


def mark(folder: Path, reason: str) -> bool:
    """Write the reason into the pages of a report, or remove it if it is empty; return whether a file changed."""
    changed = False
    for name, marked in (("report.md", _markdown), ("index.html", _page)):
        file = folder / name
        old = file.read_text(encoding="utf-8")
        new = marked(old, reason)
        if new != old:
            file.write_text(new, encoding="utf-8")
            changed = True
    if changed:
        _write_checksum(folder)
    return changed


def _markdown(text: str, reason: str) -> str:
    """Return a page in Markdown with the reason below its title."""
    without = MARKDOWN.sub("", text)
    if not reason:
        return without
    title, _, rest = without.partition("\n\n")
    return f"{title}\n\n> **{SENTENCE.format(reason=reason)}**\n\n{rest}"


def _page(text: str, reason: str) -> str:
    """Return a page in HTML with the reason below its title."""
    without = PAGE.sub("", text)
    if not reason:
        return without
    banner = html.escape(SENTENCE.format(reason=reason))
    return without.replace(
        "</h1>\n", f'</h1>\n<div class="banner" role="alert">{banner}</div>\n', 1
    )


def _write_checksum(folder: Path) -> None:
    """Write the checksum of ``report.md`` again."""
    sums = folder / "SHA256SUMS"
    digest = hashlib.sha256((folder / "report.md").read_bytes()).hexdigest()
    lines = sums.read_text(encoding="utf-8").splitlines()
    renewed = [f"{digest}  report.md" if line.endswith("  report.md") else line for line in lines]
    sums.write_text("\n".join(renewed) + "\n", encoding="utf-8")


def main(reasons: Mapping[str, str]) -> int:
    """Mark all committed reports and print those whose pages changed; 1 if a name has no report."""
    folders = {
        file.parent.relative_to(REPORTS).as_posix(): file.parent
        for file in sorted(REPORTS.rglob("answer.json"))
    }
    for name, folder in folders.items():
        if mark(folder, reasons.get(name, "")):
            print(name)
    missing = sorted(reasons.keys() - folders.keys())
    for name in missing:
        print(f"{FILE}: no report {name}")
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main(withdrawn()))
