"""The index of the reports: its counts of expected results are those of the reports."""

import re
from collections import Counter

from measured import REPORTS, committed_answers

WORDS = {"agrees": "agree", "agree": "agree", "disagrees": "disagree", "disagree": "disagree"}
"""The word of an agreement by the word of the index."""


def test_the_index_counts_the_expected_results_of_each_report() -> None:
    page = (REPORTS / "README.md").read_text(encoding="utf-8")
    questions, _, _ = page.partition("## Withdrawn reports")
    for report, answer in committed_answers():
        (row,) = re.findall(rf"^\| \[{report}\]\(.*$", questions, re.MULTILINE)
        stated: Counter[str] = Counter()
        for number, word in re.findall(r"(\d+) (agrees?|disagrees?|undecided)", row):
            stated[WORDS.get(word, word)] = int(number)
        expected: Counter[str] = Counter()
        for contrast in answer["contrasts"]:
            if contrast["agreement"]:
                word = re.split(r"[ :,]", contrast["agreement"])[0]
                expected[WORDS.get(word, word)] += 1
        assert stated == expected, report
