"""Source and pages use the words of the glossary: the words of retired-words.txt do not occur."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "plugins", "benchmarks", "experiments", "docs")
SUFFIXES = (".py", ".md", ".yaml", ".j2", ".js", ".css", ".json", ".ipynb")
EXEMPT = ("plugins/headtohead_plugins/datasets/toy/lexicon.json",)
"""Words of the toy language."""

FILES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "Makefile",
            "mkdocs.yml",
            "reports/README.md",
        )
    ),
    *(
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES
    ),
]


def retired() -> list[re.Pattern[str]]:
    lines = (Path(__file__).parent / "retired-words.txt").read_text(encoding="utf-8").splitlines()
    return [
        re.compile(rf"\b(?:{line.replace(' ', chr(92) + 's+')})\b", re.IGNORECASE)
        for line in lines
        if line and not line.startswith("#")
    ]


RETIRED = retired()
ANY = re.compile("|".join(pattern.pattern for pattern in RETIRED), re.IGNORECASE)
"""All patterns at once: a search takes a sixth of the time of one search for each."""


def found_in(text: str) -> list[str]:
    if not ANY.search(text):
        return []
    return [match[0] for pattern in RETIRED for match in pattern.finditer(text)]


@pytest.mark.parametrize("folder", [*FOLDERS, "."])
def test_no_file_has_a_retired_word(folder: str) -> None:
    files = [
        path
        for path in FILES
        if str(path.relative_to(ROOT)).startswith(f"{folder}/") or path.parent == ROOT / folder
    ]
    assert files
    found = {
        str(path.relative_to(ROOT)): found_in(path.read_text(encoding="utf-8")) for path in files
    }
    assert {name: words for name, words in found.items() if words and name not in EXEMPT} == {}
