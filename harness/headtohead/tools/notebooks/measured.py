"""What the pitfalls of a notebook did, measured once and kept beside the page."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from headtohead.config.versions import versions
from headtohead.data import file_sha256
from headtohead.model.operations import one_thread
from headtohead.planning.pitfalls import Pitfall, find_pitfalls
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.tools.notebooks import pictures
from headtohead.tools.notebooks.known import Notebook
from headtohead.tools.pitfalls import EVIDENCE, Case, Fact
from headtohead.tools.pitfalls.case import NotMeasuredError
from headtohead.tools.pitfalls.entries import recipe_config


@dataclass(frozen=True)
class Measured:
    """One pitfall of a notebook, with what was measured of it.

    Attributes:
        pitfall: The choice and what follows from it.
        facts: Evidence, in sentences with numbers.
        picture: A small picture as plain data, or None.
    """

    pitfall: Pitfall
    facts: tuple[Fact, ...]
    picture: Mapping[str, Any] | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """All numbers of the evidence, by name."""
        return {name: value for fact in self.facts for name, value in fact.numbers.items()}

    @property
    def measured(self) -> bool:
        """Whether all the data that the evidence needs is at hand."""
        return bool(self.facts) and all(fact.measured for fact in self.facts)


def measure(
    notebook: Notebook, registry: Registry, cache: Path, kept: Path, data_file: Path | None
) -> tuple[RunConfig, tuple[Measured, ...]]:
    """Return a notebook's configuration and its pitfalls with their evidence.

    Args:
        notebook: Whose recipe is looked at.
        registry: Of this process.
        cache: Of downloads and prepared data; nothing is downloaded.
        kept: Folder in which evidence is kept; it is measured again when anything changed that it
            may depend on.
        data_file: Sentence pairs for a recipe whose data is no part of the program.

    Raises:
        HeadToHeadError: If the file cannot be read.
    """
    config = recipe_config(notebook.recipe, registry)
    if data_file is not None and "file" in config.data.options:
        config = recipe_config(notebook.recipe, registry, [f"data.file={json.dumps(str(data_file))}"])
    place = kept / f"{notebook.recipe}.json"
    mark = _mark(config, notebook)
    found = _read(place, mark)
    if found is None:
        found = _measure(config, notebook, registry, cache)
        _write(place, mark, found)
    return config, found


def _measure(config: RunConfig, notebook: Notebook, registry: Registry, cache: Path) -> tuple[Measured, ...]:
    case = Case(config, registry, cache)
    with one_thread():
        return tuple(_one(pitfall, case, notebook) for pitfall in find_pitfalls(config, registry))


def _one(pitfall: Pitfall, case: Case, notebook: Notebook) -> Measured:
    facts = tuple(EVIDENCE[pitfall.name].of(case)) if pitfall.name in EVIDENCE else ()
    found = Measured(pitfall, facts)
    try:
        drawn = pictures.picture(pitfall.name, case, notebook, found.numbers)
    except NotMeasuredError:
        drawn = None
    return Measured(pitfall, facts, drawn)


def _mark(config: RunConfig, notebook: Notebook) -> str:
    """Return a sum over everything that the evidence may depend on."""
    file = config.data.options.get("file")
    content = [
        config.model_dump(mode="json"),
        asdict(notebook),
        file_sha256(Path(file).expanduser()) if file else None,
        versions()["torch"],
        [_sources(room) for room in ("headtohead.tools.pitfalls", "headtohead.model")],
        inspect.getsource(pictures),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sources(room: str) -> str:
    files = sorted(resources.files(room).iterdir(), key=lambda file: file.name)
    texts = [file.read_bytes() for file in files if file.name.endswith(".py")]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def _read(place: Path, mark: str) -> tuple[Measured, ...] | None:
    try:
        content = json.loads(place.read_bytes())
        if content["mark"] != mark:
            return None
        return tuple(
            Measured(Pitfall(**one["pitfall"]), tuple(Fact(**fact) for fact in one["facts"]), one["picture"])
            for one in content["pitfalls"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or of another version: measured again


def _write(place: Path, mark: str, found: tuple[Measured, ...]) -> None:
    content = {"mark": mark, "pitfalls": [asdict(one) for one in found]}
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    place.write_text(text + "\n", encoding="utf-8", newline="\n")
