"""Writing the package: a plugin that works, its test, a README and a small experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

import headtohead
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.registry import Registry
from headtohead.tools.plugin_template.names import Names

FAMILIES = ("positional", "attention", "masking", "dataset")

CONTRACTS = {
    "positional": ("contracts", "PositionalContract"),
    "attention": ("contracts", "AttentionContract"),
    "masking": ("contracts", "MaskingContract"),
    "dataset": ("datasets", "DatasetContract"),
}

QUESTIONS = {
    "positional": "Does {} translate better than sinusoids?",
    "attention": "Does {} translate better than plain attention?",
    "masking": "Does {} translate better than showing every earlier word?",
    "dataset": "Which encoding finds its way in {}, on rows longer than it was trained on?",
}


def write_package(family: str, name: str, folder: Path, registry: Registry) -> list[Path]:
    """Write an installable package into a new folder and return its files.

    Args:
        family: One of ``FAMILIES``.
        name: In kebab-case: what experiment files will say.
        folder: Must not exist yet.
        registry: Whose names are taken.

    Raises:
        HeadToHeadError: For an unknown family, a name that is bad or taken, a folder that exists
            or cannot be written.
    """
    if family not in FAMILIES:
        raise HeadToHeadError(f"unknown family '{family}'{nearest(family, FAMILIES)}")
    code = _template(f"{family}.py")
    names = Names(name, family, used=frozenset([*headtohead.__all__, *_used(code)]))
    taken = registry.entries[family].get(name)
    if taken is not None:
        raise HeadToHeadError(
            f"{family} '{name}' is registered already, by {taken.module} ({taken.distribution}); choose another name"
        )
    if folder.exists():
        raise HeadToHeadError(f"'{folder}' exists already; choose another name or --folder")
    content = dict(_files(family, names, code))
    try:
        folder.mkdir(parents=True)
        for file, text in content.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HeadToHeadError(f"cannot write '{folder}': {error.strerror}") from error
    return [folder / file for file in content]


def _files(family: str, names: Names, code: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file."""
    words = _words(family, names)
    test = "test_dataset.txt" if family == "dataset" else "test.txt"
    yield f"{names.module}.py", _renamed(code, names)
    yield f"test_{names.module}.py", _filled(test, words)
    yield "pyproject.toml", _filled("pyproject.txt", words)
    yield "README.md", _filled("readme.txt", words)
    yield "experiment.yaml", _filled("experiment.txt", words)


def _words(family: str, names: Names) -> Mapping[str, str]:
    module, contract = CONTRACTS[family]
    is_dataset = family == "dataset"
    check = f"h2h check {family}/{names.entry}"
    return {
        "entry": names.entry,
        "family": family,
        "module": names.module,
        "distribution": names.distribution,
        "class_name": names.class_name,
        "contract_module": module,
        "contract": contract,
        "question": QUESTIONS[family].format(names.entry),
        "data": f"dataset: {names.entry}, split: length" if is_dataset else "dataset: toy-grammar",
        "axis": "positional: [rotary, none]" if is_dataset else f"{family}: [{names.entry}]",
        "check_line": f"h2h data stats {names.entry}" if is_dataset else check,
    }


def _used(code: str) -> Iterator[str]:
    """Yield the capitalised names of a template that are not made from the plugin's name."""
    yield from (word for word in re.findall(r"\b[A-Z]\w*", code) if not word.startswith("MyIdea"))


def _renamed(code: str, names: Names) -> str:
    return code.replace("my-idea", names.entry).replace("MyIdea", names.class_name)


def _template(name: str) -> str:
    return files("headtohead.tools.plugin_template.templates").joinpath(name).read_text(encoding="utf-8")


def _filled(template: str, words: Mapping[str, str]) -> str:
    return Template(_template(template)).substitute(words)
