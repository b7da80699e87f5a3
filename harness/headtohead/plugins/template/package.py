"""Write a plugin package: a working plugin, its test, a README and a small experiment."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

import headtohead
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.registry import Registry
from headtohead.plugins.template.names import PluginNames

TEMPLATE_FAMILIES = ("positional", "attention", "masking", "dataset")

QUESTIONS = {
    "positional": "Does {} translate better than sinusoids?",
    "attention": "Does {} translate better than split heads?",
    "masking": "Does {} translate better than a causal mask?",
    "dataset": "Which positional encoding generalises to longer sentences of {} than those in training?",
}


def write_package(family: str, name: str, folder: Path, registry: Registry) -> list[Path]:
    """Write an installable package into a new folder and return the paths of its files.

    Args:
        family: One of ``TEMPLATE_FAMILIES``.
        name: Name of the plugin in experiment files, in kebab-case.
        folder: The folder to create.
        registry: The registry; its names are not available.

    Raises:
        HeadToHeadError: For an unknown family, an invalid or registered name, or a folder that exists or
            cannot be written.
    """
    if family not in TEMPLATE_FAMILIES:
        raise HeadToHeadError(f"unknown family '{family}'{nearest(family, TEMPLATE_FAMILIES)}")
    code = _template(f"{family}.py")
    capitalised = {word for word in re.findall(r"\b[A-Z]\w*", code) if not word.startswith("MyIdea")}
    names = PluginNames(name, family, reserved=frozenset(headtohead.plugin.__all__) | capitalised)
    registered = registry.entries[family].get(name)
    if registered is not None:
        raise HeadToHeadError(
            f"{family} '{name}' is already registered by {registered.module} ({registered.distribution}); "
            "choose another name"
        )
    if folder.exists():
        raise HeadToHeadError(f"'{folder}' already exists; choose another name or --folder")
    texts = _package_files(family, names, code)
    try:
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HeadToHeadError(f"cannot write '{folder}': {error.strerror}") from error
    return [folder / file for file in texts]


def _package_files(family: str, names: PluginNames, code: str) -> dict[str, str]:
    """Return the text of every file by its name."""
    is_dataset = family == "dataset"
    fields = {
        "entry": names.entry,
        "family": family,
        "module": names.module,
        "distribution": names.distribution,
        "class_name": names.class_name,
        "contract": f"{family.capitalize()}Contract",
        "question": QUESTIONS[family].format(names.entry),
        "data": f"dataset: {names.entry}, split: length" if is_dataset else "dataset: toy-grammar",
        "axis": "positional: [rotary, none]" if is_dataset else f"{family}: [{names.entry}]",
        "check_command": f"h2h data stats {names.entry}" if is_dataset else f"h2h check {family}/{names.entry}",
    }

    def filled(template: str) -> str:
        return Template(_template(template)).substitute(fields)

    return {
        f"{names.module}.py": code.replace("my-idea", names.entry).replace("MyIdea", names.class_name),
        f"test_{names.module}.py": filled("test_dataset.txt" if is_dataset else "test.txt"),
        "pyproject.toml": filled("pyproject.txt"),
        "README.md": filled("readme.txt"),
        "experiment.yaml": filled("experiment.txt"),
    }


def _template(name: str) -> str:
    return files("headtohead.plugins.template.templates").joinpath(name).read_text(encoding="utf-8")
