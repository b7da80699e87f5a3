"""Limits on how dense the code is; the exit code is 1 if a file or folder exceeds one.

A reader who reads once, top to bottom, needs statements of few tokens. Per path, this counts tokens per statement
and, per 10,000 tokens, conditional expressions (also products with a condition, such as ``text * bool(count)``) and
comprehensions (also calls of ``map`` and ``filter``). Docstrings and comments do not count. For comparison, click,
pluggy and wandb have 8.4 to 9.0 tokens per statement.

Usage: python benchmarks/density.py PATH ...
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAX_TOKENS = 10.5
"""Largest number of tokens per statement."""

MAX_CONDITIONALS = 25
MAX_COMPREHENSIONS = 50
"""Largest numbers of conditional expressions and comprehensions per 10,000 tokens."""

SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Counts:
    """Numbers of statements, tokens, conditional expressions and comprehensions of files."""

    statements: int = 0
    tokens: int = 0
    conditionals: int = 0
    comprehensions: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.statements + other.statements,
            self.tokens + other.tokens,
            self.conditionals + other.conditionals,
            self.comprehensions + other.comprehensions,
        )

    @property
    def tokens_per_statement(self) -> float:
        return self.tokens / max(1, self.statements)

    def per_ten_thousand_tokens(self, number: int) -> float:
        return 10_000 * number / max(1, self.tokens)

    def exceeded(self) -> list[str]:
        """Return the names of the limits that are exceeded."""
        densities = {
            "tokens per statement": (self.tokens_per_statement, MAX_TOKENS),
            "conditional expressions": (
                self.per_ten_thousand_tokens(self.conditionals),
                MAX_CONDITIONALS,
            ),
            "comprehensions": (
                self.per_ten_thousand_tokens(self.comprehensions),
                MAX_COMPREHENSIONS,
            ),
        }
        return [name for name, (density, limit) in densities.items() if density > limit]


def count(source: str) -> Counts:
    """Return the counts of the text of a Python file."""
    tree = ast.parse(source)
    docstrings = docstring_lines(tree)
    statements = 0
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in SKIPPED or token.start[0] in docstrings:
            continue
        if token.type == tokenize.NEWLINE:
            statements += 1
        else:
            tokens += 1
    nodes = list(ast.walk(tree))
    conditionals = sum(is_conditional(node) for node in nodes)
    comprehensions = sum(is_comprehension(node) for node in nodes)
    return Counts(statements, tokens, conditionals, comprehensions)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the line numbers of the docstrings of modules, classes and functions."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def is_conditional(node: ast.AST) -> bool:
    """Return whether a node is a conditional expression, or a product with a condition."""
    if isinstance(node, ast.IfExp):
        return True
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return is_product and (is_condition(node.left) or is_condition(node.right))


def is_condition(node: ast.expr) -> bool:
    """Return whether an expression is a comparison, a boolean operation or a call of ``bool``."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Compare | ast.BoolOp) or called_name(node) == "bool"


def is_comprehension(node: ast.AST) -> bool:
    """Return whether a node is a comprehension, or a call of ``map`` or ``filter``."""
    return isinstance(node, COMPREHENSIONS) or called_name(node) in ("map", "filter")


def called_name(node: ast.AST) -> str:
    """Return the name of the called function, or an empty text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return ""


def count_path(path: Path) -> Counts:
    """Return the counts of a Python file, or of all Python files in a folder."""
    if path.is_file():
        return count(path.read_text(encoding="utf-8"))
    counts = Counts()
    for file in sorted(path.rglob("*.py")):
        counts += count(file.read_text(encoding="utf-8"))
    return counts


def main(paths: Iterable[Path]) -> int:
    """Print the density of each file or folder; return 1 if one exceeds a limit, else 0."""
    code = 0
    for path in paths:
        counts = count_path(path)
        conditionals = counts.per_ten_thousand_tokens(counts.conditionals)
        comprehensions = counts.per_ten_thousand_tokens(counts.comprehensions)
        print(
            f"{path}: {counts.tokens_per_statement:.1f} tokens per statement (at most {MAX_TOKENS}); per 10,000 "
            f"tokens {conditionals:.0f} conditional expressions (at most {MAX_CONDITIONALS}), {comprehensions:.0f} "
            f"comprehensions (at most {MAX_COMPREHENSIONS})"
        )
        exceeded = counts.exceeded()
        if exceeded:
            print(f"{path}: too many {' and '.join(exceeded)}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path)
    sys.exit(main(parser.parse_args().paths))
