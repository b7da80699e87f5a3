"""The content of the page as plain values: results, choices and pitfalls of each notebook."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.model.precision import one_thread
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, Pitfall
from headtohead.storage.frames import load_frames
from headtohead.storage.metrics import counted, show
from headtohead.testing.checks.entries import recipe_config
from headtohead.testing.checks.examination import MissingFilesError
from headtohead_notebooks.page import scores
from headtohead_notebooks.page.descriptions import NOTEBOOKS, PITFALL_TEXTS
from headtohead_notebooks.page.design_choices import SIZES, choice_rows
from headtohead_notebooks.page.editions import Edition
from headtohead_notebooks.page.numbers import fill
from headtohead_notebooks.pitfalls import MEASUREMENTS
from headtohead_notebooks.pitfalls.case import Case

OWN_DATA, SAME_DATA = "notebooks-as-printed", "notebooks-same-data"
MAX_CLAUSES = 3
"""Number of contrasts in the sentence of an experiment."""


@dataclass(frozen=True)
class ExperimentResult:
    """One experiment of the page with its runs, if there are any.

    Attributes:
        edition: The experiment as it is run.
        analysis: The analysis of its runs, or None if it was not run.
        report: Link to its report; empty if there is none.
    """

    edition: Edition
    analysis: Analysis | None
    report: str = ""

    @cached_property
    def contrasts(self) -> tuple[ContrastResult, ...]:
        """The main contrasts; none between two configurations with missing runs."""
        if self.analysis is None or (
            self.analysis.families.added.contrasts and not self._is_complete
        ):
            return ()
        return self.analysis.main_contrasts

    @property
    def answer(self) -> str:
        """The verdicts of the first contrasts, as a sentence; empty without any."""
        clauses = [
            f"{contrast.name}: {contrast.verdict}" for contrast in self.contrasts[:MAX_CLAUSES]
        ]
        return _capitalised("; ".join(clauses)) if clauses else ""

    @cached_property
    def progress(self) -> str:
        """The number of finished runs."""
        if self.analysis is None:
            return "not run yet"
        frames = self.analysis.frames
        done = int(frames.runs["state"].isin(states.RESULTS).sum())
        return f"{done:,} of {len(frames.runs):,} runs done, {counted(len(frames.seeds), 'seed')}"

    @property
    def _is_complete(self) -> bool:
        return self.analysis is not None and bool(
            self.analysis.frames.runs["state"].isin(states.RESULTS).all()
        )


@dataclass(frozen=True)
class NotebookPitfall:
    """A pitfall of one notebook with its measured numbers.

    Attributes:
        pitfall: The field and its consequence.
        numbers: The measured numbers; none if the data is not available.
        missing: Why nothing was measured; empty if numbers were measured.
    """

    pitfall: Pitfall
    numbers: Mapping[str, float] = field(default_factory=dict)
    missing: str = ""

    @property
    def name(self) -> str:
        return self.pitfall.name

    @property
    def text(self) -> SimpleNamespace:
        return PITFALL_TEXTS[self.name]

    @property
    def anchor(self) -> str:
        """Id of its explanation on the page."""
        return "pitfall-" + "".join(letter if letter.isalnum() else "-" for letter in self.name)

    @property
    def effect(self) -> str:
        """The effect with its numbers, or the consequence if nothing was measured."""
        if not self.numbers:
            return _capitalised(self.pitfall.consequence)
        is_zero = not next(iter(self.numbers.values()))
        return fill((is_zero and self.text.effect_if_zero) or self.text.effect, self.numbers)


def measure_notebook(
    recipe: str, cache: Path, data_file: Path | None
) -> tuple[RunConfig, tuple[NotebookPitfall, ...]]:
    """Return the configuration of a notebook and its measured pitfalls.

    Args:
        recipe: The recipe of the notebook.
        cache: Folder of downloads and prepared data; nothing is downloaded.
        data_file: Sentence pairs for a recipe without built-in data.

    Raises:
        HeadToHeadError: If the file cannot be read.
    """
    config = recipe_config(recipe)
    if data_file is not None and "file" in type(config.data.options).model_fields:
        config = recipe_config(recipe, [f"data.file={json.dumps(str(data_file))}"])
    case, measured = Case(config, cache), []
    with one_thread():
        for pitfall in find_pitfalls(config):
            try:
                measured.append(NotebookPitfall(pitfall, MEASUREMENTS[pitfall.name](case)))
            except MissingFilesError as error:
                measured.append(NotebookPitfall(pitfall, missing=f"Not measured: {error}."))
    return config, tuple(measured)


@dataclass(frozen=True)
class PageContent:
    """The content of the page.

    Attributes:
        results: The experiments in the order in which they are run.
        configs: The configuration of each notebook.
        pitfalls: The measured pitfalls of each notebook.
        quick: Whether the runs are those of the quick form.
        command: The command that writes the page.
    """

    results: tuple[ExperimentResult, ...]
    configs: Sequence[RunConfig]
    pitfalls: Sequence[Sequence[NotebookPitfall]]
    quick: bool
    command: str

    @cached_property
    def questions(self) -> tuple[ExperimentResult, ...]:
        """The experiments that answer a question, in the order of the page."""
        results = [result for result in self.results if result.edition.experiment.name != OWN_DATA]
        return tuple(sorted(results, key=lambda result: result.edition.experiment.position))

    @cached_property
    def choices(self) -> dict[str, tuple[str, ...]]:
        """Every choice in which the notebooks differ, with the value of each."""
        return choice_rows(self.configs)

    @cached_property
    def sections(self) -> tuple[SimpleNamespace, ...]:
        return tuple(self._section(index, notebook) for index, notebook in enumerate(NOTEBOOKS))

    @cached_property
    def same_data(self) -> list[SimpleNamespace]:
        """The scores of the notebooks' choices on the same data, best first."""
        result = self._result(SAME_DATA)
        if result is None or result.analysis is None:
            return []
        names = {notebook.recipe: f"{notebook.number} {notebook.recipe}" for notebook in NOTEBOOKS}
        return scores.ranked_scores(result.analysis, names)

    @cached_property
    def explained_pitfalls(self) -> tuple[list[tuple[SimpleNamespace, NotebookPitfall]], ...]:
        """Every pitfall with the notebooks that have it, in the order of the notebooks."""
        by_name: dict[str, list[tuple[SimpleNamespace, NotebookPitfall]]] = {}
        for notebook, pitfalls in zip(NOTEBOOKS, self.pitfalls, strict=True):
            for pitfall in pitfalls:
                by_name.setdefault(pitfall.name, []).append((notebook, pitfall))
        return tuple(by_name.values())

    def _result(self, name: str) -> ExperimentResult | None:
        return next(
            (result for result in self.results if result.edition.experiment.name == name), None
        )

    def _section(self, index: int, notebook: SimpleNamespace) -> SimpleNamespace:
        rows = self.choices
        unique = [
            name
            for name, values in rows.items()
            if values.count(values[index]) == 1 and name not in SIZES
        ]
        own = self._scores(OWN_DATA, notebook)
        return SimpleNamespace(
            notebook=notebook,
            choices=[(name, rows[name][index]) for name in (*unique, *SIZES)],
            own_scores=own,
            short_score=next((line for line in reversed(own) if "translation" in line), own[0]),
            same_scores=self._scores(SAME_DATA, notebook),
            pitfalls=self.pitfalls[index],
        )

    def _scores(self, name: str, notebook: SimpleNamespace) -> list[str]:
        result = self._result(name)
        if result is None:
            return ["not run"]
        reason = result.edition.omitted.get(notebook.recipe)
        if reason is not None or result.analysis is None:
            return [f"not run: {reason}" if reason else result.progress]
        lines = scores.own_data_scores if name == OWN_DATA else scores.same_data_scores
        return list(lines(result.analysis, notebook.recipe)) or ["not part of these runs"]


def read_result(edition: Edition, runs: Path, out: Path) -> ExperimentResult:
    """Return an experiment with the runs that exist.

    Args:
        edition: The experiment as it is run.
        runs: Folder of run directories.
        out: Folder of reports.
    """
    folder = runs / edition.name
    if not (folder / EXPERIMENT).is_file():
        return ExperimentResult(edition, None)
    report = f"{edition.name}/index.html" if (out / edition.name / "index.html").is_file() else ""
    return ExperimentResult(edition, Analysis(load_frames(folder), allow_partial=True), report)


def _capitalised(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def difference_text(contrast: ContrastResult) -> str:
    """Return the difference of a contrast with its interval and its verdict, or why there is none."""
    change = contrast.paired
    if change is None:
        return contrast.reason or contrast.verdict
    mean, found = show(change.mean, contrast.metric, signed=True), contrast.judgement.interval
    if found is None:
        return f"{mean}, {contrast.verdict}"
    low, high = (show(value, contrast.metric, signed=True) for value in (found.low, found.high))
    return f"{mean} ({found.percent} interval {low} to {high}), {contrast.verdict}"
