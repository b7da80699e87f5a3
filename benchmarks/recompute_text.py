"""Recompute every number of the text of a report: sentences, remarks, captions and tables of ``report.md``.

    python benchmarks/recompute_text.py reports/quickstart [reports/...] [docs/results/CARD.md ...]

Nothing of headtohead is imported. Every number belongs to one of three kinds:

- recomputed: from the rows of ``results.csv``, with numpy and scipy. Intervals and p-values are those of
  ``answer.json``, which `recompute` recomputes; the falls of training losses and the scores of reference points are
  only in ``answer.json``.
  A sentence or row on a contrast belongs to the one that has it in ``answer.json``, where its words are checked, too.
- listed: no measurement, such as a field of the experiment file, a fact of the data set, a version or a fixed sentence.
- without a source: in a table of `NO_SOURCE`; its runs are not committed, and only the checksum protects it. In a
  ranking, how much worse a combination can be has a lower limit, because scores of single examples are not committed.

A number of no kind, or with another value, is printed with its line, and the exit code is 1. So is a sentence that
``answer.json`` has with other words, and a file that does not have the checksum of ``SHA256SUMS``. Of reports in
``reports/withdrawn.yaml``, only the checksums are checked. A card of ``docs/results`` is checked against the reports
that its rows name.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from report_text.answer import REST_RULES, number_problems, sentence_problems, templates
from report_text.cards import card_findings
from report_text.contrast_tables import contrast_cells
from report_text.files import Finding, checksum_findings, sentence_findings
from report_text.numbers import METRICS, NUMBER, agrees, fits, shown
from report_text.order_transfer import transfers
from report_text.page import POINTS, Page, seed_table
from report_text.ranking import RULES as RANKING_RULES
from report_text.ranking import pair_problem, ranking_problem
from report_text.remarks import FIXED, NAMED_RULES, RULES
from report_text.size_prediction import RULES as SIZE_RULES
from report_text.size_prediction import row_problem
from report_text.variant_tables import variant_cell
from withdrawn import reason_of

REPORTS = Path(__file__).parents[1] / "reports"
"""Reports that the rows of cards name."""

CONFIGURATION = {"Set-up", "Data", "Reproduction"}
"""Sections without a measurement of the study: configuration, facts of the data set, versions."""

EXAMPLES = {"Outputs", "Translations side by side"}
"""Sections with test examples and their outputs, in which digits are tokens."""

NO_SOURCE = {
    (
        "By length of the source",
        None,
    ): "scores by source length, of which results.csv has only declared lengths",
    ("Tuning", None): "the runs of the sweep",
    ("Scores and costs", "attention width"): "the product of heads and key width",
    ("Sources of uncertainty", "sample of the examples"): "scores of single examples",
}
"""Section and column, row or None for all, and what is not committed."""


LARGEST = re.compile(r"could be up to [\d.,]+(?: \w+ or [\d.,]+)?")


class Checker:
    """The check of a report, line by line; ``kinds`` counts the numbers of each kind."""

    def __init__(self, folder: Path) -> None:
        self.page = Page(folder)
        self.kinds: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.section = ""
        self.columns: list[str] = []

    def check(self) -> list[Finding]:
        """Return what is wrong with the numbers of the report."""
        in_code = False
        for number, line in enumerate(self.page.lines, start=1):
            if line.startswith("~~~"):
                in_code = not in_code
            elif in_code or self.is_description(line):
                self.kinds["listed"] += len(NUMBER.findall(line))
            elif line.startswith("#"):
                self.section = re.sub(r"^#+ ", "", line)
                self.sentence(number, re.sub(r"^#+ ", "", line))
            elif line.startswith("|"):
                self.row(number, line)
            else:
                self.columns = []
                self.sentence(number, line)
        return self.findings

    def is_description(self, line: str) -> bool:
        """Return whether a line is text of the experiment file, which the report repeats at its end."""
        words = " ".join(line.split()).strip("*")
        return len(words) > 10 and words in self.page.file

    def sentence(self, number: int, line: str) -> None:
        """Check the numbers of a line outside of tables."""
        if self.section in CONFIGURATION:
            self.kinds["listed"] += len(NUMBER.findall(line))
            return
        masked = self.page.masked(line)
        claimed = [False] * len(masked)
        self.contrasts(number, line, claimed)
        for pattern in FIXED:
            for found in re.finditer(pattern, masked):
                self.claim(claimed, found, "listed")
        for pattern, values in [*RULES, *RANKING_RULES, *SIZE_RULES]:
            for found in re.finditer(pattern, masked):
                self.compare(number, found, values(self.page, found))
                self.claim(claimed, found, "recomputed")
        for pattern, values_after in [*NAMED_RULES, *REST_RULES]:
            for found in re.finditer(pattern, masked):
                before = line[: found.start()]
                self.compare(number, found, values_after(self.page, before, found))
                self.claim(claimed, found, "recomputed")
        for found in NUMBER.finditer(masked):
            if not all(claimed[found.start() : found.end()]):
                around = line[max(0, found.start() - 40) : found.end() + 30]
                self.findings.append(Finding(number, f"no source for {found[0]} in '{around}'"))

    def contrasts(self, number: int, line: str, claimed: list[bool]) -> None:
        """Check the numbers of the sentences on contrasts in a line."""
        for template in templates(self.page):
            for found in template.pattern.finditer(line):
                self.findings += number_problems(number, found, template.expected)
                self.claim(claimed, found, "recomputed")

    def claim(self, claimed: list[bool], found: re.Match[str], kind: str) -> None:
        self.kinds[kind] += len(NUMBER.findall(found[0]))
        claimed[found.start() : found.end()] = [True] * (found.end() - found.start())

    def compare(self, number: int, found: re.Match[str], values: Sequence[float | None]) -> None:
        for printed, value in zip(found.groups(), values, strict=False):
            if printed is not None and value is not None and not agrees(printed, value):
                self.findings.append(
                    Finding(number, f"{printed}, expected {value:.6g}, in '{found[0]}'")
                )

    def row(self, number: int, line: str) -> None:
        """Check the cells of a row of a table."""
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not self.columns:
            self.columns = cells
            self.table_rows = 0
            return
        if set(line) <= set("|-: "):
            return
        self.table_rows += 1
        if self.section in CONFIGURATION | EXAMPLES:
            self.kinds["listed"] += len(NUMBER.findall(line))
            return
        if (self.section, None) in NO_SOURCE:
            self.kinds["without a source"] += len(NUMBER.findall(line))
            return
        cells = [cell.replace("*", "") for cell in cells]
        problem = self.problem(number, cells)
        self.kinds["recomputed"] += len(NUMBER.findall(line))
        if problem:
            self.findings.append(Finding(number, f"{self.section}, {cells[0]}: {problem}"))

    def problem(self, number: int, cells: Sequence[str]) -> str:
        """Return what is wrong with the numbers of a row, or an empty text."""
        if self.section == "Order transfer":
            expected = transfers(self.page)[self.table_rows - 1]
            text = " ".join(cells[1:]).replace("→", "")
            return "" if fits(text, expected) else f"expected {shown(expected)}"
        if self.section == "Effects at the largest size":
            return row_problem(self.page, self.table_rows - 1, cells)
        if self.section == "Every pair":
            return pair_problem(self.page, self.table_rows - 1, cells)
        if self.section == "Ranking":
            return ranking_problem(self.page, self.table_rows - 1, cells)
        if self.section == "Sources of uncertainty":
            return self.source_problem(cells)
        if self.columns[0] in ("variant", ""):
            return self.variant_problem(number, cells)
        return self.contrast_problem(number, cells)

    def variant_problem(self, number: int, cells: Sequence[str]) -> str:
        page = self.page
        slug = page.slug_of(cells[0])
        if slug is None:
            return self.point_problem(cells)
        self.sentence(number, cells[0])
        for column, cell in zip(self.columns[1:], cells[1:], strict=True):
            if (self.section, column) in NO_SOURCE:
                self.kinds["without a source"] += 1
                continue
            expected = variant_cell(page, slug, column, cell)
            if expected is None:
                self.sentence(number, cell)
            elif not fits(page.masked(cell), expected):
                return f"{column} '{cell}', expected {shown(expected)}"
        return ""

    def name_cells(self, number: int, cells: Sequence[str]) -> None:
        """Check the digits in the cells of text of a contrast's row: expected results, verdicts with notes."""
        for column, cell in zip(self.columns[1:], cells[1:], strict=True):
            if column == "expected":  # text of the experiment file
                self.kinds["listed"] += len(NUMBER.findall(cell))
            if column == "verdict":  # `contrast_cells` checks the largest difference
                self.sentence(number, LARGEST.sub("", cell))

    def point_problem(self, cells: Sequence[str]) -> str:
        """Return what is wrong with a row of reference points."""
        if cells[0] not in POINTS:
            return "no source"
        if self.section != "Reference points":
            self.kinds["without a source"] += len(cells) - 1
            return ""
        scores = self.page.answer["reference_points"]["scores"][POINTS[cells[0]]]
        for column, cell in zip(self.columns[1:], cells[1:], strict=True):
            if not fits(cell, [scores[METRICS[column]]]):
                return f"{column} '{cell}', expected {scores[METRICS[column]]}"
        return ""

    def source_problem(self, cells: Sequence[str]) -> str:
        table = seed_table(self.page)
        if cells[0] == "training seed":
            expected = [math.sqrt(table.var(axis=1, ddof=1).mean())]
        elif cells[0].startswith("true means"):
            residual = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
            squares = (residual**2).sum() / (
                (table.shape[0] - 1) * (table.shape[1] - 1) or math.nan
            )
            expected = (
                [math.sqrt(max(0.0, table.mean(axis=1).var(ddof=1) - squares / table.shape[1]))]
                if len(table) > 1
                else []
            )
        else:
            self.kinds["without a source"] += len(NUMBER.findall(cells[1]))
            return ""
        if not NUMBER.search(cells[1]):
            return ""
        return "" if fits(cells[1], expected) else f"'{cells[1]}', expected {shown(expected)}"

    def contrast_problem(self, number: int, cells: Sequence[str]) -> str:
        """Return why the row is not that of a contrast, or an empty text."""
        page, name = self.page, cells[0]
        self.sentence(number, name)
        self.name_cells(number, cells)
        tested_columns = {"difference", "training seeds", "difference in validation loss"}
        values = [
            cell
            for column, cell in zip(self.columns, cells, strict=True)
            if column in tested_columns or not tested_columns.intersection(self.columns)
        ]
        if not any(NUMBER.search(cell) for cell in values):
            return ""
        tested = [own for own in page.answer["contrasts"] if own["difference"] is not None]
        named = [own for own in tested if name.startswith(own["name"])]
        candidates = named or tested
        columns, rest = self.columns[1:], cells[1:]
        kept = [
            index for index, column in enumerate(columns) if (self.section, column) not in NO_SOURCE
        ]
        problems = [
            contrast_cells(page, own, [columns[i] for i in kept], [rest[i] for i in kept])
            for own in candidates
        ]
        return "" if "" in problems else problems[0]


def main(folders: Sequence[str]) -> int:
    """Print the numbers of each report by kind, and everything that is wrong."""
    wrong = 0
    for folder in folders:
        if folder.endswith(".md"):
            findings = card_findings(Path(folder), REPORTS)
            print(f"{folder}: {len(findings)} wrong")
            wrong += shown_findings(folder, findings)
            continue
        findings = checksum_findings(Path(folder))
        reason = reason_of(Path(folder))
        if reason:
            print(f"{folder}: withdrawn: {reason}")
            wrong += shown_findings(folder, findings)
            continue
        checker = Checker(Path(folder))
        findings = [
            *checker.check(),
            *sentence_problems(checker.page),
            *sentence_findings(checker.page),
            *findings,
        ]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(checker.kinds.items()))
        print(f"{folder}: {kinds}; {len(findings)} wrong")
        wrong += shown_findings(folder, findings)
    return int(wrong > 0)


def shown_findings(folder: str, findings: Sequence[Finding]) -> int:
    """Print what is wrong with a report and return its number."""
    for finding in findings:
        file = folder if folder.endswith(".md") else f"{folder}/report.md"
        print(f"  {file}:{finding.line}: {finding.problem}")
    return len(findings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", metavar="FOLDER", help="folder of a report, or a card"
    )
    raise SystemExit(main(parser.parse_args().folders))
