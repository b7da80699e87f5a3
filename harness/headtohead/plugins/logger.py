"""Loggers: base classes of what sends runs and studies to an experiment tracker.

Training writes run directories only. A separate process per logger reads them and calls the logger, so that a slow or
unreachable tracker neither delays nor loses a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from headtohead.errors import HeadToHeadError
from headtohead.plugins.entry import Entry


class DeniedError(HeadToHeadError):
    """A tracker refuses the user or the study, so that a further attempt is useless."""


class LoggedRun(Protocol):
    """A run to log; the object is read-only."""

    @property
    def experiment(self) -> str:
        """Name of the experiment."""

    @property
    def name(self) -> str:
        """Name of the run directory, unique within the experiment."""

    @property
    def run_hash(self) -> str:
        """Hash of all that the result depends on; the same for a retrained run."""

    @property
    def training(self) -> str:
        """Hash that changes if the run begins at step 0 again, as with ``--fresh`` or ``--retry``."""

    @property
    def title(self) -> str:
        """Title of the variant."""

    @property
    def seed(self) -> int:
        """Seed of the run."""

    @property
    def axes(self) -> Mapping[str, Any]:
        """Values of the experiment's axes."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The complete configuration as JSON data."""

    @property
    def root(self) -> Path:
        """Folder beside which a logger of files writes: that of the ``runs`` folder."""

    @property
    def path(self) -> Path:
        """The run directory; a logger only reads it."""


class LoggedStudy(Protocol):
    """A study to log; the object is read-only."""

    @property
    def name(self) -> str:
        """Name of the experiment."""

    @property
    def path(self) -> Path:
        """The folder of the experiment; a logger only reads it."""

    @property
    def record(self) -> Any:
        """The content of ``experiment.json``: question, variants, contrasts, metrics and data."""

    def runs(self) -> Sequence[LoggedRun]:
        """Return all planned runs in the order of the plan."""


@dataclass(frozen=True)
class AnsweredContrast:
    """A main contrast of an answer.

    Args:
        label: The name of the contrast, such as ``rotary instead of sinusoidal``.
        sentence: The sentence on the contrast.
        direction: The first words of the verdict, such as ``better`` or ``no difference shown``.
        verdict: The verdict, such as ``better``.
        metric: The metric of the difference, such as ``test/exact_match``.
        difference: The mean difference; None without a test.
        interval: The ends of the interval of the difference; None without one.
        adjusted_p: The p-value, corrected for the number of contrasts; None without a test.
        seeds: Number of seeds of the test.
    """

    label: str
    sentence: str
    direction: str
    verdict: str
    metric: str
    difference: float | None
    interval: tuple[float, float] | None
    adjusted_p: float | None
    seeds: int


@dataclass(frozen=True)
class Answer:
    """The answer to the question of a study, as the report has it.

    Args:
        text: The answer, or why there is none.
        limits: What limits the answer, in a line; empty if nothing is known to.
        rows: The table of differences: a row per main contrast, with texts by the name of the column.
        cautions: The remarks beside the answer: severity (``warning`` or ``caution``) and text.
        setup: The set-up in a sentence.
        scores: The mean of the primary metric by slug of the ranked variants.
        contrasts: The main contrasts.
        verdicts: The verdict on each variant against the baseline by slug; ``baseline`` for the baseline itself.
        report: The files of the report by name, such as ``index.html`` and ``figures/scores.svg``, to attach unread;
            empty if no report was written.
    """

    text: str
    limits: str
    rows: Sequence[Mapping[str, str]]
    cautions: Sequence[tuple[str, str]]
    setup: str
    scores: Mapping[str, float]
    contrasts: Sequence[AnsweredContrast]
    verdicts: Mapping[str, str]
    report: Mapping[str, Path]


class Logger(Entry):
    """Sends a run to a tracker; one object per run.

    Calls in order: ``begin``, ``log`` for each step, ``end``. After a killed process, or an exception of a call, a new
    object begins again. Each step is logged once if ``begin`` returns the last step that the tracker has, or removes
    what an earlier object has written and returns -1.

    A tracker that also shows a study as a whole overrides ``for_study``.
    """

    charts_command: ClassVar[str] = ""
    """Command of ``h2h`` that opens the tracker's charts; printed after the last run. Empty: there is none."""

    accepts_uri: ClassVar[bool] = False
    """Whether ``h2h sync --uri`` selects the tracker's address."""

    def __init__(self, run: LoggedRun) -> None:
        self.run = run

    @classmethod
    def for_study(cls, study: LoggedStudy, uri: str | None) -> StudyLogger:
        """Return the logger of a study.

        Args:
            study: The study.
            uri: The address in ``h2h sync --uri``; None: the tracker's default.
        """
        return StudyLogger(study, cls)

    @classmethod
    def has_all(cls, study: LoggedStudy, answer: Answer | None) -> bool:
        """Return whether the tracker has all runs of a study and its answer, as they are.

        Called in the process of ``h2h run`` where it has trained nothing, so it imports no large package. False: a pass
        over the runs finds out.

        Args:
            study: The study.
            answer: The answer of the study; None: there is none.
        """
        return False

    @classmethod
    def tracker_name(cls, runs: Path) -> str:
        """Return the name of the tracker in messages; ``runs`` is the runs folder."""
        return cls.entry_name

    @classmethod
    def check_tracker(cls, runs: Path) -> str | None:
        """Return the state of the tracker as a line of ``h2h doctor``, or None for no line.

        Raises:
            HeadToHeadError: If the tracker cannot be used.
        """
        return None

    @classmethod
    def closing_line(cls, runs: Path, uri: str | None) -> str | None:
        """Return the last line of ``h2h sync``, such as how to open the links; None for no line."""
        return None

    def exists(self) -> bool:
        """Return whether the tracker still has a run that was logged completely."""
        return True

    def begin(self) -> int:
        """Open the run and return the last step that the tracker has; -1 for none."""
        raise NotImplementedError

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Log all metrics of a step; ``seconds`` since 1970. Steps increase."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make the logged steps visible. Called after a series of steps of an active run."""

    def end(self, state: str, results: Mapping[str, float]) -> None:
        """Close the run with its final state, such as DONE, and the results: scores of the best checkpoint and costs.

        With early stopping, a result such as the validation loss differs from the last value of its history.
        An interrupted run that continues begins again.
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Release what ``begin`` has opened. Called after an exception of another call, before a new object begins."""


class StudyLogger:
    """Sends a study to a tracker; one object per study and process.

    A pass over the runs makes these calls inside of ``opened``: ``describe``, ``logger`` and the calls of that `Logger`
    for each run with news, and in the last pass ``finish``. The methods here log the runs only.
    """

    def __init__(self, study: LoggedStudy, run_logger: type[Logger]) -> None:
        self.study = study
        """The study; the object is replaced before a pass if the study has changed."""
        self.run_logger = run_logger

    def opened(self) -> AbstractContextManager[None]:
        """Hold what a pass over the runs needs, such as a connection; its errors end the pass."""
        return nullcontext()

    def received(self) -> dict[str, str] | None:
        """Return the content hash by run hash of the runs that the tracker has as a whole.

        None: the tracker does not store content hashes, and headtohead keeps a list of the logged runs.
        """
        return None

    def logger(self, run: LoggedRun) -> Logger:
        """Return a new logger of a run."""
        return self.run_logger(run)

    def concerns_run(self, error: Exception) -> bool:
        """Return whether an error concerns a single run; otherwise it ends the pass."""
        return True

    def describe(self, answer: Answer | None, *, is_last: bool) -> None:
        """Log what belongs to the study as a whole.

        Args:
            answer: The answer of the study; None: there is none yet.
            is_last: Whether no run is in training.
        """

    def finish(self) -> list[str]:
        """Complete the study after its last run; return notes for the user."""
        return []

    @property
    def link(self) -> str | None:
        """The address of the study's page."""
        return None
