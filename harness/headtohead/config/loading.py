"""Reading experiment files; each error names file, line and field."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead import files
from headtohead.config.source_location import FieldPath, Source, SourceLocation, shown
from headtohead.config.validation_errors import checked
from headtohead.config.yaml_text import parse, parse_override
from headtohead.errors import HeadToHeadError, similar_file
from headtohead.schema.experiment_file import AUTO_FACTORS, ExperimentFile, SequentialSeeds

if TYPE_CHECKING:
    from headtohead.plugins.registry import Registry

MAX_RUNS = 100_000
"""Maximum number of runs of an experiment including its tuning runs; ``--max-runs`` raises it."""

SWEEP_LABEL = "tuning"
"""Label of the experiment that holds the tuning runs."""


@dataclass(frozen=True)
class Override:
    """One ``--set path=value``, merged over ``base`` of every variant."""

    path: tuple[str, ...]
    value: Any
    location: SourceLocation
    text: str


@dataclass(frozen=True)
class LoadedExperiment:
    """A validated experiment file with its text and the line of every field.

    ``seeds`` are all seeds that runs can have; with `sequential` seeds, those of the last look.
    """

    name: str
    path: Path
    text: str
    file: ExperimentFile
    source: Source
    seeds: tuple[int, ...]
    overrides: tuple[Override, ...] = ()
    max_runs: int = MAX_RUNS
    seeds_option: str | None = None
    label: str | None = None

    @property
    def heading(self) -> str:
        """The name and the question of the experiment, the first line of commands."""
        return f"{self.name}: {self.file.question}"

    def location(self, *parts: str | int) -> SourceLocation:
        """Return the source location of a field, for errors."""
        return SourceLocation(self.source, parts)

    def load_plugins(self) -> Registry:
        """Register the plugins that the file names, and return the registry of this process.

        Raises:
            HeadToHeadError: If a plugin does not exist or cannot be registered, with its location in the file.
        """
        from headtohead.plugins.registry import current, use_named  # imports torch

        for number, name in enumerate(self.file.plugins):
            try:
                use_named(name, self.path.parent)
            except HeadToHeadError as error:
                raise self.location("plugins", number).error(str(error)) from error
        return current()

    @property
    def sequential(self) -> SequentialSeeds | None:
        """How seeds are added, or None if their number is fixed."""
        if isinstance(self.file.seeds, SequentialSeeds):
            return self.file.seeds
        return None

    @property
    def sweep_name(self) -> str:
        """The name of the experiment with the runs of ``tune``."""
        return f"{self.name}-{SWEEP_LABEL}"

    @property
    def experiments(self) -> tuple[str, ...]:
        """The names of the experiments whose runs this file trains."""
        if self.file.tune:
            return (self.name, self.sweep_name)
        return (self.name,)

    @property
    def run_options(self) -> list[str]:
        """The options of ``h2h run`` beside the file, quoted for a shell."""
        words = []
        for override in self.overrides:
            words += ["--set", override.text]
        if self.seeds_option is not None:
            words += ["--seeds", self.seeds_option]
        if self.label is not None:
            words += ["--name", self.label]
        return [shlex.quote(word) for word in words]


def load_file(
    path: Path | str,
    overrides: Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    max_runs: int = MAX_RUNS,
    label: str | None = None,
) -> LoadedExperiment:
    """Read an experiment file and apply ``--set``, ``--seeds``, ``--max-runs`` and ``--name``."""
    return load_text(_read(Path(path)), Path(path), overrides, seeds, max_runs, label)


def load_text(
    text: str,
    path: Path,
    overrides: Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    max_runs: int = MAX_RUNS,
    label: str | None = None,
) -> LoadedExperiment:
    """Validate the text of an experiment file."""
    value, lines = parse(text, str(path))
    source = Source(str(path), lines, path.parent.resolve())
    if value is None:
        raise HeadToHeadError(f"{path}: the file is empty; it needs at least 'question'")
    root = SourceLocation(source)
    if not isinstance(value, dict):
        raise root.error(f"expected fields such as 'question: …', got {shown(value)}")
    if isinstance(overrides, str):
        raise HeadToHeadError(
            f"overrides takes a list of texts such as model.d_model=64, got the text {overrides!r}"
        )
    if seeds is not None:
        value = value | {"seeds": seeds if isinstance(seeds, int) else list(seeds)}

    def locate(field: FieldPath) -> SourceLocation:
        """Return the source location of a field; that of the seeds may be the option."""
        if field[:1] == ("seeds",) and seeds is not None:
            return SourceLocation(Source(f"--seeds {seeds}"))
        return root.child(*field)

    file = checked(ExperimentFile, value, locate)
    for name in ("tune_seeds", "tune_epochs"):
        if file.tune is None and name in value:
            raise root.child(name).error("requires tune; add the values to try, or leave it out")
    all_seeds = _all_seeds(file)
    refuse_many_runs(path, file, count_combinations(file), len(all_seeds), max_runs)
    return LoadedExperiment(
        name=labelled(experiment_name(path), label),
        path=path,
        text=text,
        file=file,
        source=source,
        seeds=all_seeds,
        overrides=tuple(read_override(text) for text in overrides),
        max_runs=max_runs,
        seeds_option=None if seeds is None else str(seeds),
        label=label,
    )


def _all_seeds(file: ExperimentFile) -> tuple[int, ...]:
    """Return all seeds that runs can have; with sequential seeds, those of the last look."""
    seeds = file.seeds
    if isinstance(seeds, SequentialSeeds):
        seeds = seeds.at_most
    if isinstance(seeds, int):
        return tuple(range(1, seeds + 1))
    return tuple(seeds)


def count_combinations(file: ExperimentFile) -> int:
    """Return the number of combinations of axis values without expanding them; a path has 1."""
    combinations = 0
    for block in file.design:
        if block.product is not None:
            combinations += math.prod(_size(values) for values in block.product.values())
        if block.one_at_a_time is not None:
            combinations += sum(_size(values) for values in block.one_at_a_time.values())
        if block.zip is not None:
            combinations += _size(block.zip)
    sizes = len(file.sizes or ())
    return max(1, combinations) * max(1, sizes)


def _size(values: Sequence[Any] | Mapping[str, Sequence[Any]]) -> int:
    """Return the number of values of an axis, or of axes that change together."""
    if isinstance(values, Mapping):
        return max((len(column) for column in values.values()), default=0)
    return len(values)


def refuse_many_runs(
    path: Path, file: ExperimentFile, variants: int, seeds: int, max_runs: int
) -> None:
    """Raise if an experiment has more runs than the limit, tuning runs included."""
    settings = 0
    if file.tune:
        settings = math.prod(
            len(AUTO_FACTORS) if values == "auto" else len(values) for values in file.tune.values()
        )
    runs = variants * (seeds + settings * file.tune_seeds)
    if runs <= max_runs:
        return
    if runs > 10**15:  # Python refuses to print thousands of digits
        raise HeadToHeadError(
            f"{path}: more than 10^15 runs, above the limit of {max_runs:,}; vary fewer values"
        )
    tuning = ""
    if file.tune:
        tuning = f", tuned with {settings:,} settings × {file.tune_seeds:,} seeds"
        tuning += " and without further values and seeds,"
    raise HeadToHeadError(
        f"{path}: {_counted(variants, 'variant')} × {_counted(seeds, 'seed')}{tuning} are {runs:,} runs, more than the "
        f"limit of {max_runs:,}; vary fewer values, or raise the limit: --max-runs {runs}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def experiment_name(path: Path) -> str:
    """Return the name of an experiment: the stem of its file, in characters that all file systems accept."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.")
    if not name:
        raise HeadToHeadError(f"{path}: the file's name has no letter or digit; rename the file")
    return name


def labelled(name: str, label: str | None) -> str:
    """Return the name of an experiment with its label.

    Raises:
        HeadToHeadError: If the label cannot be part of a folder's name, or is the label of tuning runs.
    """
    if label is None:
        return name
    if not label:
        raise HeadToHeadError("--name is empty; use letters and digits")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", label):
        raise HeadToHeadError(
            f"--name {label}: '{label}' cannot be part of an experiment's name; use letters and "
            "digits, and . _ - between them"
        )
    if label == SWEEP_LABEL or label.endswith(f"-{SWEEP_LABEL}"):
        raise HeadToHeadError(
            f"--name {label}: '{name}-{label}' is the name of tuning runs; use another label"
        )
    return f"{name}-{label}"


def _read(path: Path) -> str:
    try:
        data = files.read_bytes(path, advice="name a readable experiment file")
    except FileNotFoundError as error:
        hint = similar_file(path, ".yaml", ".yml") or "; h2h new-experiment writes one"
        raise HeadToHeadError(f"experiment file '{path}' does not exist{hint}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        byte = f"byte 0x{data[error.start]:02x}"
        raise HeadToHeadError(
            f"{path}:{line}: not UTF-8 text ({byte}); save the file as UTF-8"
        ) from error


def read_override(text: str) -> Override:
    """Parse ``path=value`` of ``--set``."""
    name, value = parse_override(text)
    location = SourceLocation(Source(f"--set {text}", folder=Path.cwd()))
    return Override(tuple(name.split(".")), value, location, text)
