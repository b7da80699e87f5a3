"""Files of a report: sentences that two of them have, and checksums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from report_text.page import Page, unescaped


@dataclass(frozen=True)
class Finding:
    """What is wrong with a line of a report."""

    line: int
    problem: str


def sentence_findings(page: Page) -> list[Finding]:
    """Return the sentences of ``answer.json`` that the report does not have."""
    answer = page.answer
    sentences = [
        answer["answer"],
        answer["setup"],
        *(remark["text"] for remark in answer["remarks"]),
        *answer["limits"],
    ]
    words = " ".join(page.text.replace("**", "").split())
    missing = [text for text in sentences if " ".join(unescaped(text).split()) not in words]
    return [Finding(0, f"answer.json has another sentence: {text}") for text in missing]


def checksum_findings(folder: Path) -> list[Finding]:
    """Return the files of a report that do not have the checksum of ``SHA256SUMS``, and those without one."""
    sums = folder / "SHA256SUMS"
    if not sums.is_file():
        return [Finding(0, "SHA256SUMS is missing; h2h report writes it")]
    recorded = dict(
        line.split("  ", 1)[::-1] for line in sums.read_text(encoding="utf-8").splitlines()
    )
    findings = []
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    present = {file.relative_to(folder).as_posix(): file for file in files}
    for name in sorted({*recorded, *present} - {"SHA256SUMS", "index.html", ".headtohead.jsonl"}):
        actual = (
            hashlib.sha256(present[name].read_bytes()).hexdigest() if name in present else "missing"
        )
        if recorded.get(name) != actual:
            findings.append(
                Finding(0, f"{name} is not the file that was generated: edited by hand?")
            )
    return findings
