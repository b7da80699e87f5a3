"""Mark committed reports as withdrawn: their numbers follow rules that no longer hold, or a claim is wrong.

    python benchmarks/withdrawn.py

``reports/withdrawn.yaml`` has the reason by name of a report. This script writes the reason below the title of
``report.md`` of these reports, removes it from reports that are no longer in the file, writes ``SHA256SUMS`` again,
and lists the withdrawn reports in ``reports/README.md``. The other benchmarks name withdrawn reports and skip their
numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

REPORTS = Path(__file__).parents[1] / "reports"
FILE = "withdrawn.yaml"
SENTENCE = "> **Withdrawn: {reason}**\n\n"
MARKED = re.compile(r"> \*\*Withdrawn: [^\n]*\*\*\n\n")
START, END = "<!-- withdrawn -->\n", "<!-- end of withdrawn -->"
NONE = "No report is withdrawn.\n"


def withdrawn(reports: Path = REPORTS) -> dict[str, str]:
    """Return the reasons by name of the withdrawn reports; empty without a file."""
    file = reports / FILE
    if not file.is_file():
        return {}
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")) or {})


def reason_of(folder: Path) -> str:
    """Return why a report is withdrawn; empty for other reports, and for a folder below no list of them."""
    resolved = folder.resolve()
    for reports in resolved.parents:
        if (reports / FILE).is_file():
            name = resolved.relative_to(reports).as_posix()
            return withdrawn(reports).get(name, "")
    return ""


def marked(text: str, reason: str) -> str:
    """Return a page in Markdown with the reason below its title; without a reason, with none."""
    without = MARKED.sub("", text)
    if not reason:
        return without
    title, _, rest = without.partition("\n\n")
    return f"{title}\n\n{SENTENCE.format(reason=reason)}{rest}"


def mark(folder: Path, reason: str) -> bool:
    """Write the reason into the page of a report, or remove it if it is empty; return whether the page changed."""
    page = folder / "report.md"
    old = page.read_text(encoding="utf-8")
    new = marked(old, reason)
    if new == old:
        return False
    page.write_text(new, encoding="utf-8")
    sums = folder / "SHA256SUMS"
    digest = hashlib.sha256(new.encode()).hexdigest()
    renewed = re.sub(r"^\w+(?=  report\.md$)", digest, sums.read_text("utf-8"), flags=re.MULTILINE)
    sums.write_text(renewed, encoding="utf-8")
    return True


def listed(text: str, reasons: Mapping[str, str]) -> str:
    """Return the page of all reports with the withdrawn ones by reason, between its two comments.

    Raises:
        ValueError: If the page has not both comments.
    """
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"expected {START.strip()} and {END}")
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        names_by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in names_by_reason.items():
        links = ", ".join(f"[{name}]({name}/report.md)" for name in names)
        lines.append(f"- {links}: {reason}\n")
    return before + start + ("".join(lines) or NONE) + end + after


def main(reports: Path = REPORTS) -> int:
    """Mark all committed reports and print each changed one; return 1 if a withdrawn name has no report."""
    reasons = withdrawn(reports)
    folders = {
        file.parent.relative_to(reports).as_posix(): file.parent
        for file in sorted(reports.rglob("answer.json"))
    }
    for name, folder in folders.items():
        if mark(folder, reasons.get(name, "")):
            print(name)
    index = reports / "README.md"
    index.write_text(listed(index.read_text(encoding="utf-8"), reasons), encoding="utf-8")
    missing = sorted(reasons.keys() - folders.keys())
    for name in missing:
        print(f"{FILE}: no report {name}")
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
