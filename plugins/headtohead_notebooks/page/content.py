"""The content of the page as plain values: results, choices and pitfalls of each notebook."""

from __future__ import annotations

import json
import re
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

OWN_DATA = "notebooks-as-printed"
SAME_DATA = "notebooks-same-data"
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
        if self.analysis is None:
            return ()
        if self.analysis.families.added.contrasts and not self._is_complete:
            return ()
        return self.analysis.main_contrasts

    @property
    def answer(self) -> str:
        """The verdicts of the first contrasts, as a sentence; empty without any."""
        if not self.contrasts:
            return ""
        first_contrasts = self.contrasts[:MAX_CLAUSES]
        clauses = [f"{contrast.name}: {contrast.verdict}" for contrast in first_contrasts]
        return _capitalised("; ".join(clauses))

    @cached_property
    def progress(self) -> str:
        """The number of finished runs."""
        if self.analysis is None:
            return "not run yet"
        frames = self.analysis.frames
        done = int(frames.has_result.sum())
        seeds = counted(len(frames.seeds), "seed")
        return f"{done:,} of {len(frames.runs):,} runs done, {seeds}"

    @property
    def _is_complete(self) -> bool:
        """Whether every run has a result."""
        if self.analysis is None:
            return False
        return bool(self.analysis.frames.has_result.all())


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
        name = re.sub(r"[\W_]", "-", self.name)
        return f"pitfall-{name}"

    @property
    def effect(self) -> str:
        """The effect with its numbers, or the consequence if nothing was measured."""
        if not self.numbers:
            return _capitalised(self.pitfall.consequence)
        first_number = next(iter(self.numbers.values()))
        sentence = self.text.effect
        if first_number == 0 and self.text.effect_if_zero:
            sentence = self.text.effect_if_zero
        return fill(sentence, self.numbers)


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
    case = Case(config, cache)
    measured = []
    with one_thread():
        for pitfall in find_pitfalls(config):
            measure = MEASUREMENTS[pitfall.name]
            try:
                measured.append(NotebookPitfall(pitfall, measure(case)))
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
        """The texts and numbers of each notebook's section of the page."""
        return tuple(self._section(index, notebook) for index, notebook in enumerate(NOTEBOOKS))

    @cached_property
    def same_data(self) -> list[SimpleNamespace]:
        """The scores of the notebooks' choices on the same data, best first."""
        result = self._result(SAME_DATA)
        if result is None or result.analysis is None:
            return []
        names = {}
        for notebook in NOTEBOOKS:
            names[notebook.recipe] = f"{notebook.number} {notebook.recipe}"
        return scores.ranked_scores(result.analysis, names)

    @cached_property
    def explained_pitfalls(self) -> tuple[list[tuple[SimpleNamespace, NotebookPitfall]], ...]:
        """Every pitfall with the notebooks that have it, in the order of the notebooks."""
        by_name: dict[str, list[tuple[SimpleNamespace, NotebookPitfall]]] = {}
        for notebook, pitfalls in zip(NOTEBOOKS, self.pitfalls, strict=True):
            for pitfall in pitfalls:
                occurrences = by_name.setdefault(pitfall.name, [])
                occurrences.append((notebook, pitfall))
        return tuple(by_name.values())

    def _result(self, name: str) -> ExperimentResult | None:
        for result in self.results:
            if result.edition.experiment.name == name:
                return result
        return None

    def _section(self, index: int, notebook: SimpleNamespace) -> SimpleNamespace:
        """Return the section of a notebook: its own choices, the sizes, its scores and its pitfalls."""
        own_choices = []
        for name, values in self.choices.items():
            if name not in SIZES and values.count(values[index]) == 1:
                own_choices.append((name, values[index]))
        sizes = [(name, self.choices[name][index]) for name in SIZES]
        own_scores = self._scores(OWN_DATA, notebook)
        short_score = own_scores[0]
        for line in own_scores:
            if "translation" in line:
                short_score = line
        return SimpleNamespace(
            notebook=notebook,
            choices=own_choices + sizes,
            own_scores=own_scores,
            short_score=short_score,
            same_scores=self._scores(SAME_DATA, notebook),
            pitfalls=self.pitfalls[index],
        )

    def _scores(self, name: str, notebook: SimpleNamespace) -> list[str]:
        """Return the scores of a notebook in an experiment, or why there are none."""
        result = self._result(name)
        if result is None:
            return ["not run"]
        reason = result.edition.omitted.get(notebook.recipe)
        if reason:
            return [f"not run: {reason}"]
        if result.analysis is None:
            return [result.progress]
        if name == OWN_DATA:
            lines = scores.own_data_scores(result.analysis, notebook.recipe)
        else:
            lines = scores.same_data_scores(result.analysis, notebook.recipe)
        return list(lines) or ["not part of these runs"]


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
    analysis = Analysis(load_frames(folder), allow_partial=True)
    report = f"{edition.name}/index.html"
    if not (out / report).is_file():
        report = ""
    return ExperimentResult(edition, analysis, report)


def _capitalised(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def difference_text(contrast: ContrastResult) -> str:
    """Return the difference of a contrast with its interval and its verdict, or why there is none."""
    change = contrast.paired
    if change is None:
        return contrast.reason or contrast.verdict
    mean = show(change.mean, contrast.metric, signed=True)
    interval = contrast.judgement.interval
    if interval is None:
        return f"{mean}, {contrast.verdict}"
    low = show(interval.low, contrast.metric, signed=True)
    high = show(interval.high, contrast.metric, signed=True)
    return f"{mean} (95 % interval {low} to {high}), {contrast.verdict}"
