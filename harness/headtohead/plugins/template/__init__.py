"""The packages that ``h2h new-plugin`` writes: a working plugin, its test, a README and a small experiment.

The plugin is the source of a built-in entry under another name.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib.resources import files
from pathlib import Path
from string import Template

from headtohead.errors import HeadToHeadError, nearest
from headtohead.files import writing
from headtohead.plugins.families import FAMILIES
from headtohead.plugins.registry import current, find_entry

TEMPLATES = {
    family.name: family.template for family in FAMILIES.values() if family.template is not None
}
"""What a package begins with, by family."""

PHRASE = re.compile(r'^    phrase = "[^"]*"\n', re.MULTILINE)
"""The line with which an entry is called otherwise than by its name."""


def write_package(family: str, name: str, folder: Path) -> list[Path]:
    """Write an installable package into a new folder and return the paths of its files.

    Args:
        family: One of ``TEMPLATES``.
        name: Name of the plugin in experiment files, in kebab-case.
        folder: The folder to create.

    Raises:
        HeadToHeadError: For an unknown family, an invalid or registered name, or a folder that exists or
            cannot be written.
    """
    if family not in TEMPLATES:
        raise HeadToHeadError(f"unknown family '{family}'{nearest(family, TEMPLATES)}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise HeadToHeadError(
            f"'{' '.join(name.split())}' is not a valid plugin name; use lower-case letters, digits and single "
            "hyphens, such as 'my-idea'"
        )
    if registered := current().entries[family].get(name):
        raise HeadToHeadError(
            f"{family} '{name}' is already registered by {registered.module} ({registered.distribution}); "
            "choose another name"
        )
    if folder.exists():
        raise HeadToHeadError(f"'{folder}' already exists; choose another name or --folder")
    texts = _package_files(family, name)
    with writing(folder, "choose another --folder"):
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in texts]


def _package_files(family: str, name: str) -> dict[str, str]:
    """Return the text of every file by its name."""
    template = TEMPLATES[family]
    entry = find_entry(family, template.entry).entry
    # The prefix avoids clashes with packages such as torch, the family those with classes such as Tensor.
    module = f"h2h_{name.replace('-', '_')}"
    class_name = "".join(part.capitalize() for part in (*name.split("-"), *family.split("_")))
    fields = {
        "entry": name,
        "example": template.entry,
        "family": family,
        "module": module,
        "distribution": f"h2h-{name}",
        "class_name": class_name,
        "contract": template.contract,
        "question": template.question.format(name),
        "data": template.data.format(name),
        "axis": template.axis.format(name) or f"{family}: [{name}]",
        "check_command": template.check.format(name) or f"h2h check {family}/{name}",
    }
    templates = {
        f"test_{module}.py": "test.txt",
        "pyproject.toml": "pyproject.txt",
        "README.md": "readme.txt",
        "experiment.yaml": "experiment.txt",
    }
    folder = files("headtohead.plugins.template") / "templates"
    texts = {
        file: (folder / template).read_text(encoding="utf-8")
        for file, template in templates.items()
    }
    docstring = str(
        sys.modules[entry.__module__].__doc__
    )  # may cite a title with the name of the class
    *start, code = inspect.getsource(sys.modules[entry.__module__]).partition(docstring)
    renamed = re.sub(rf"\b{entry.__name__}\b", class_name, code)
    without_phrase = PHRASE.sub("", renamed)  # reports would call the new entry like the copied one
    plugin = "".join([*start, without_phrase]).replace(f'"{template.entry}"', f'"{name}"')
    return {f"{module}.py": plugin} | {
        file: Template(text).substitute(fields) for file, text in texts.items()
    }
