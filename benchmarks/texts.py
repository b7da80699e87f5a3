"""Write the three texts of the contested components, one million characters each, and print their sha256.

    python benchmarks/texts.py FOLDER --shakespeare tinyshakespeare.txt.xz --pairs eng-spa.tsv.xz

``shakespeare.txt`` is the beginning of tiny Shakespeare. ``english.txt`` has the English sentences of Tatoeba pairs,
each once, in the order of their sha256. ``docstrings.txt`` has the paragraphs of the docstrings of numpy and scipy, as
they are installed, each once, in the order of their files. With the eng-spa pairs of manythings.org of July 2019, numpy
2.4.6 and scipy 1.17.1, the sha256 begin with 7684416e, f12e4bda and 51aaa614.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import lzma
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

CHARACTERS = 1_000_000
PACKAGES = ("numpy", "scipy")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read(path: Path) -> str:
    """Return the text of a file, which may be compressed with xz."""
    content = path.read_bytes()
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    return content.decode("utf-8")


def is_plain(text: str) -> bool:
    """Return whether a text has printable ASCII characters and line feeds only."""
    return all(character == "\n" or " " <= character <= "~" for character in text)


def sentences(pairs: str) -> Iterator[str]:
    """Yield the plain first fields of a table, each once, in the order of their sha256."""
    firsts = {line.split("\t")[0] for line in pairs.split("\n")}
    yield from sorted(
        filter(is_plain, firsts), key=lambda text: hashlib.sha256(text.encode()).digest()
    )


def docstrings(package: str) -> Iterator[str]:
    """Yield the docstrings of a package, without tests, in the order of its files and of their lines.

    Raises:
        ModuleNotFoundError: If the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed; run pip install {package}")
    root = Path(next(iter(spec.submodule_search_locations)))
    for file in sorted(root.rglob("*.py")):
        if "tests" in file.relative_to(root).parts:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
        for node in sorted(nodes, key=lambda node: getattr(node, "lineno", 0)):
            text = ast.get_docstring(node)
            if text:
                yield text


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Yield the plain paragraphs of texts, each once."""
    seen = set()
    for text in texts:
        for paragraph in text.split("\n\n"):
            stripped = paragraph.strip("\n")
            if stripped and is_plain(stripped) and stripped not in seen:
                seen.add(stripped)
                yield stripped


def beginning(name: str, parts: Iterable[str], separator: str) -> str:
    """Return the first `CHARACTERS` characters of joined parts.

    Raises:
        SystemExit: If there are fewer.
    """
    kept = []
    length = 0
    for part in parts:
        kept.append(part + separator)
        length += len(kept[-1])
        if length >= CHARACTERS:
            return "".join(kept)[:CHARACTERS]
    raise SystemExit(f"{name}: expected at least {CHARACTERS:,} characters, got {length:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shakespeare", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    arguments = parser.parse_args()
    of_packages = (text for package in PACKAGES for text in docstrings(package))
    texts = {
        "shakespeare.txt": beginning("shakespeare.txt", [read(arguments.shakespeare)], ""),
        "english.txt": beginning("english.txt", sentences(read(arguments.pairs)), "\n"),
        "docstrings.txt": beginning("docstrings.txt", paragraphs(of_packages), "\n\n"),
    }
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        content = text.encode()
        (arguments.folder / name).write_bytes(content)
        print(f"{hashlib.sha256(content).hexdigest()}  {name}")
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES))


if __name__ == "__main__":
    main()
