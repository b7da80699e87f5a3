"""``h2h new-plugin``: write an installable package with a working plugin, its test, a README and a small experiment."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.registry import Registry

FAMILIES = {
    "positional": "Does {} translate better than sinusoids?",
    "attention": "Does {} translate better than split heads?",
    "masking": "Does {} translate better than a causal mask?",
    "feed_forward": "Does {} translate better than ReLU?",
    "norm": "Does {} translate better than layer normalisation?",
    "dataset": "Which positional encoding generalises to longer sentences of {} than those in training?",
}
"""The families of templates, each with the question of its experiment."""


def write_package(family: str, name: str, folder: Path, registry: Registry) -> list[Path]:
    """Write an installable package into a new folder and return the paths of its files.

    Args:
        family: One of ``FAMILIES``.
        name: Name of the plugin in experiment files, in kebab-case.
        folder: The folder to create.
        registry: The registry; its names are not available.

    Raises:
        HeadToHeadError: For an unknown family, an invalid or registered name, or a folder that exists or
            cannot be written.
    """
    if family not in FAMILIES:
        raise HeadToHeadError(f"unknown family '{family}'{nearest(family, FAMILIES)}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise HeadToHeadError(
            f"'{' '.join(name.split())}' is not a valid plugin name; use lower-case letters, digits and single "
            "hyphens, such as 'my-idea'"
        )
    if registered := registry.entries[family].get(name):
        raise HeadToHeadError(
            f"{family} '{name}' is already registered by {registered.module} ({registered.distribution}); "
            "choose another name"
        )
    if folder.exists():
        raise HeadToHeadError(f"'{folder}' already exists; choose another name or --folder")
    texts = _package_files(family, name)
    try:
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HeadToHeadError(f"cannot write '{folder}': {error.strerror}") from error
    return [folder / file for file in texts]


def _package_files(family: str, name: str) -> dict[str, str]:
    """Return the text of every file by its name."""
    is_dataset = family == "dataset"
    # The prefix avoids clashes with packages such as torch, the family those with classes such as Tensor.
    module = f"h2h_{name.replace('-', '_')}"
    class_name = "".join(part.capitalize() for part in (*name.split("-"), *family.split("_")))
    fields = {
        "entry": name,
        "family": family,
        "module": module,
        "distribution": f"h2h-{name}",
        "class_name": class_name,
        "contract": f"{family.title().replace('_', '')}Contract",
        "question": FAMILIES[family].format(name),
        "data": f"dataset: {name}, split: length" if is_dataset else "dataset: toy-grammar",
        "axis": "positional: [rotary, none]" if is_dataset else f"{family}: [{name}]",
        "check_command": f"h2h data stats {name}" if is_dataset else f"h2h check {family}/{name}",
    }

    templates = {
        f"{module}.py": f"{family}.py",
        f"test_{module}.py": "test_dataset.txt" if is_dataset else "test.txt",
        "pyproject.toml": "pyproject.txt",
        "README.md": "readme.txt",
        "experiment.yaml": "experiment.txt",
    }
    folder = files("headtohead.plugins.template.templates")
    texts = {file: (folder / template).read_text(encoding="utf-8") for file, template in templates.items()}
    texts[f"{module}.py"] = texts[f"{module}.py"].replace("my-idea", name).replace("MyIdea", class_name)
    return {file: Template(text).substitute(fields) for file, text in texts.items()}
