"""An entry is a small file: its code without docstrings fits on a screen."""

import ast
from pathlib import Path

import pytest

import headtohead_plugins

FOLDER = Path(headtohead_plugins.__file__).parent
FILES = [
    path for family in ("positional", "attention", "masking") for path in sorted((FOLDER / family).glob("[a-z]*.py"))
]
MOST = 60
NOTEBOOKS = {"embedding_softmax.py": 75}
"""A mistake of a notebook, reproduced with all its incompatible settings."""


def code(text):
    """Return the lines that are neither blank, nor a comment, nor part of a docstring."""
    docstring_lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstring_lines |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(text.splitlines(), start=1)
    return [
        line
        for number, line in lines
        if line.strip(" #") and number not in docstring_lines and not line.lstrip().startswith("#")
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_entry_has_at_most_sixty_lines_of_code(path):
    assert len(code(path.read_text("utf-8"))) <= NOTEBOOKS.get(path.name, MOST)
