"""Everything that the page says, as plain values: the page and the Markdown file print the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headtohead.analysis.study import Analysis, analyse
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.frames import load_frames
from headtohead.storage.metrics import readable
from headtohead.storage.progress import read_progress
from headtohead.storage.records import EXPERIMENT, ExperimentRecord, read_record
from headtohead.tools.notebooks import scores
from headtohead.tools.notebooks.answers import Answer, answer
from headtohead.tools.notebooks.choices import Choice, choices, own
from headtohead.tools.notebooks.editions import Edition
from headtohead.tools.notebooks.known import EXPLANATIONS, NOTEBOOKS, Explanation, Notebook
from headtohead.tools.notebooks.measured import Measured
from headtohead.tools.notebooks.numbers import fill
from headtohead.tools.pitfalls.fact import counted

AS_PRINTED, SAME_DATA = "notebooks-as-printed", "notebooks-same-data"
FEW_CELLS = 3
"""So many boxes of a picture fit into a narrow column."""

SIZES = ("d_model / heads / layers / d_ff", "optimiser", "epochs, batch")


@dataclass(frozen=True)
class Study:
    """One experiment of the page with its runs, as far as there are any.

    Attributes:
        edition: As it is run.
        analysis: Of its runs, or None where it was not run.
        report: Where its report is, as the page links it; empty where there is none.
    """

    edition: Edition
    analysis: Analysis | None
    report: str = ""

    @cached_property
    def answer(self) -> Answer | None:
        """Its answer in plain words; none of a path on which runs are missing."""
        if self.analysis is None or (self.analysis.path and not self.complete):
            return None
        return answer(self.edition.experiment, self.analysis)

    @cached_property
    def runs(self) -> str:
        """How many runs have come to a result."""
        if self.analysis is None:
            return f"not run: {self.edition.reason or 'h2h notebooks runs it'}"
        frames = self.analysis.frames
        done = int(frames.runs["state"].isin(states.RESULTS).sum())
        seeds = len(frames.seeds)
        return f"{done:,} of {len(frames.runs):,} runs done, {counted(seeds, 'seed')}"

    @property
    def complete(self) -> bool:
        """Whether every run has come to a result."""
        if self.analysis is None:
            return False
        return bool(self.analysis.frames.runs["state"].isin(states.RESULTS).all())

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of an axis on which all its lines lie that are not losses."""
        found = [
            end
            for line in (self.answer.lines if self.answer else ())
            if line.change is not None and self.analysis and line.metric == self.analysis.metric
            for end in (line.change.low, line.change.mean, line.change.high)
            if math.isfinite(end)
        ]
        most = max((abs(end) for end in found), default=1.0) or 1.0
        return -most, most


@dataclass(frozen=True)
class Broken:
    """A pitfall of one notebook, in the words of the page."""

    measured: Measured
    explanation: Explanation

    @property
    def name(self) -> str:
        """The pitfall's name."""
        return self.measured.pitfall.name

    @property
    def anchor(self) -> str:
        """Where the page explains it."""
        return "pitfall-" + "".join(one if one.isalnum() else "-" for one in self.name)

    @property
    def did(self) -> str:
        """What it did, with the numbers; what follows from it where nothing was measured."""
        numbers = self.measured.numbers
        try:
            if self.explanation.did_none and not next(iter(numbers.values()), 1):
                return fill(self.explanation.did_none, numbers)
            return fill(self.explanation.did, numbers)
        except KeyError:
            says = self.measured.pitfall.consequence
            return f"{says[0].upper()}{says[1:]}."

    @property
    def missing(self) -> str:
        """What could not be measured, and why."""
        told = [fact.sentence for fact in self.measured.facts if not fact.measured]
        return f"{told[0][0].upper()}{told[0][1:]}." if told else ""

    @property
    def wide(self) -> bool:
        """Whether its picture needs the whole width."""
        picture = self.measured.picture or {}
        panels = picture.get("panels", ())
        cells = [len(row["cells"]) for one in panels for row in one.get("rows", ())]
        return len(panels) > 1 or max(cells, default=0) > FEW_CELLS

    @property
    def long(self) -> bool:
        """Whether its picture needs a line of its own even there."""
        return len((self.measured.picture or {}).get("columns", ())) > FEW_CELLS + 1


@dataclass(frozen=True)
class Row:
    """One notebook on the page."""

    notebook: Notebook
    chose: tuple[tuple[str, str], ...]
    sizes: tuple[tuple[str, str], ...]
    scored: tuple[str, ...]
    same: tuple[str, ...]
    own_short: str
    same_short: str
    broken: tuple[Broken, ...]


@dataclass(frozen=True)
class Told:
    """A pitfall, with every notebook that has it."""

    name: str
    anchor: str
    field: str
    explanation: Explanation
    where: tuple[tuple[Notebook, Broken], ...]


@dataclass(frozen=True)
class Content:
    """What the page says.

    Attributes:
        studies: The experiments, in the order in which they are run.
        configs: A configuration for each notebook.
        pitfalls: What was measured of each notebook's pitfalls.
        registry: Where labels of entries come from.
        quick: Whether the runs are those of the quick form.
        command: Typed by the reader to make the page again.
    """

    studies: tuple[Study, ...]
    configs: Sequence[RunConfig]
    pitfalls: Sequence[Sequence[Measured]]
    registry: Registry
    quick: bool
    command: str

    @cached_property
    def by_name(self) -> Mapping[str, Study]:
        """The experiments by name."""
        return {one.edition.experiment.name: one for one in self.studies}

    @cached_property
    def questions(self) -> tuple[Study, ...]:
        """The experiments that answer a question in a sentence, the path first."""
        asked = [one for one in self.studies if one.edition.experiment.name != AS_PRINTED]
        return tuple(sorted(asked, key=lambda one: one.edition.experiment.rank))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Every choice of every notebook."""
        rows = choices(self.configs, [one.data for one in NOTEBOOKS], self.registry)
        return (*rows, Choice("prints", tuple(" ".join(one.prints) for one in NOTEBOOKS)))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The notebooks."""
        return tuple(self._row(place, one) for place, one in enumerate(NOTEBOOKS))

    def _row(self, place: int, notebook: Notebook) -> Row:
        words = {row.name: row.words[place] for row in self.choices}
        return Row(
            notebook=notebook,
            chose=tuple(one for one in own(self.choices, place) if one[0] != "prints"),
            sizes=tuple((name, words[name]) for name in SIZES),
            scored=tuple(self._scored(AS_PRINTED, notebook)),
            same=tuple(self._scored(SAME_DATA, notebook)),
            own_short=_short(self._scored(AS_PRINTED, notebook), "translation"),
            same_short=_short(self._scored(SAME_DATA, notebook), "accuracy"),
            broken=tuple(Broken(one, EXPLANATIONS[one.pitfall.name]) for one in self.pitfalls[place]),
        )

    def _scored(self, name: str, notebook: Notebook) -> list[str]:
        study = self.by_name.get(name)
        if study is None:
            return ["not run"]
        reason = study.edition.left_out.get(notebook.recipe)
        if reason is not None or study.analysis is None:
            return [f"not run: {reason}" if reason else study.runs]
        tell = scores.as_printed if name == AS_PRINTED else scores.on_same_data
        return list(tell(study.analysis, notebook.recipe)) or ["not part of these runs"]

    @cached_property
    def same_data(self) -> list[scores.Score]:
        """The notebooks' choices on the same data, best first."""
        study = self.by_name.get(SAME_DATA)
        if study is None or study.analysis is None:
            return []
        names = {one.recipe: f"{one.number} {one.recipe}" for one in NOTEBOOKS}
        return scores.same_data(study.analysis, names)

    @property
    def same_metric(self) -> str:
        """What the same data is scored by."""
        return readable(self.same_data[0].metric) if self.same_data else ""

    @cached_property
    def told(self) -> tuple[Told, ...]:
        """Every pitfall once, in the order of the notebooks."""
        found: dict[str, list[tuple[Notebook, Broken]]] = {}
        for row in self.rows:
            for one in row.broken:
                found.setdefault(one.name, []).append((row.notebook, one))
        return tuple(
            Told(name, where[0][1].anchor, where[0][1].measured.pitfall.field, where[0][1].explanation, tuple(where))
            for name, where in found.items()
        )


def _short(lines: Sequence[str], wanted: str) -> str:
    """Return the line that holds a word, the last of several, or the first line."""
    return next((line for line in reversed(lines) if wanted in line), lines[0])


def read_study(edition: Edition, runs: Path, out: Path) -> Study:
    """Read what there is of an experiment's runs."""
    folder = runs / edition.name
    if edition.reason is not None or not (folder / EXPERIMENT).is_file():
        return Study(edition, None)
    page = out / edition.name / "index.html"
    report = f"{edition.name}/index.html" if page.is_file() else ""
    return Study(edition, analyse(load_frames(folder), allow_partial=True), report)


def is_done(edition: Edition, runs: Path, out: Path) -> bool:
    """Tell whether every run of an edition has come to a result and its report is written."""
    record = read_record(ExperimentRecord, runs / edition.name / EXPERIMENT)
    if record is None or record.text != edition.text:
        return False
    if not (out / edition.name / "index.html").is_file():
        return False
    return all(run.state in states.RESULTS for run in read_progress(runs / edition.name).runs)
