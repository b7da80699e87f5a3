"""Write the sentence on the spread of the scores of a committed report again, from its ``results.csv``.

    python benchmarks/restate.py reports/contested/sizes [reports/...]

`h2h report` needs the run directories, which are not committed. This script replaces the sentence in ``report.md`` and
``answer.json``, copies the sentence on the set-up from ``report.md`` to ``answer.json``, and writes ``SHA256SUMS``
again. The other sentences stay; `recompute_text` checks their numbers.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from recompute_text import Page, agrees, baseline_spread, unescaped

from headtohead.analysis.findings.scores import pooled_text, spread_text
from headtohead.escaping import json_text
from headtohead.report.folder import CHECKSUMS
from headtohead.report.writing import checksums

SPREAD = re.compile(
    r"(The baseline, .+,|The variant) has a mean .+ of (\S+), with a standard deviation of (\S+) over seeds"
    r"(?:; pooled over (all variants[\w ]*), it is (\S+))?\."
)


def restated(page: Page, sentence: str) -> str:
    """Return the sentence on the spread with the numbers of the runs; all other sentences are unchanged."""
    found = SPREAD.fullmatch(sentence)
    if found is None:
        return sentence
    values = baseline_spread(page, found)
    numbers = [number for number in found.groups()[1:] if number and number[0].isdigit()]
    if all(agrees(number, value) for number, value in zip(numbers, values, strict=False)):
        return sentence
    mean, sd, pooled = values
    text = spread_text(found[1], page.metric, mean, sd)
    return f"{text}; {pooled_text(found[4], page.metric, pooled)}." if found[4] else f"{text}."


def restate(folder: Path) -> list[str]:
    """Write the sentences of a report again and return those that changed."""
    page = Page(folder)
    answer, text = page.answer, (folder / "report.md").read_text(encoding="utf-8")
    changed = []
    for remark in answer["remarks"]:
        new = restated(page, remark["text"])
        if new != remark["text"]:
            changed.append(new)
        remark["text"] = new
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(lines):
        sentence = line.removeprefix("- ").rstrip("\n")
        if SPREAD.fullmatch(sentence):
            lines[index] = f"- {restated(page, sentence)}\n"
        elif sentence.startswith("Set-up: ") and unescaped(sentence) != answer["setup"]:
            answer["setup"] = unescaped(sentence)
            changed.append(answer["setup"])
    (folder / "report.md").write_text("".join(lines), encoding="utf-8")
    (folder / "answer.json").write_text(json_text(answer, indent=2) + "\n", encoding="utf-8")
    generated = [
        file for file in folder.rglob("*") if file.is_file() and file.name != ".headtohead.jsonl"
    ]
    contents = {file.relative_to(folder).as_posix(): file.read_bytes() for file in generated}
    (folder / CHECKSUMS).write_text(checksums(contents), encoding="utf-8")
    return changed


def main(folders: Sequence[str]) -> int:
    """Print the changed sentences of each report."""
    for folder in folders:
        for sentence in restate(Path(folder)):
            print(f"{folder}: {sentence}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="folder of a report")
    raise SystemExit(main(parser.parse_args().folders))
