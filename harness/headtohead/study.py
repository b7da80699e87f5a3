"""A study: the runs of an experiment file as a sequence of steps.

`Study.validate` finds every error of the input before a file changes. Then `Study.next_step` returns one step after the
other: repair, archive, sweep, its further values and seeds, comparison, looks, report. Each step depends only on the
results of the earlier ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headtohead.config.loading import LoadedExperiment
from headtohead.config.project import next_command
from headtohead.data import cache_root
from headtohead.errors import DiskError, HeadToHeadError, Interrupted
from headtohead.execution.launching import refuse_precision
from headtohead.execution.progress import failure_lines, next_step
from headtohead.execution.repair import (
    Damage,
    archive_runs,
    find_damage,
    move_stale_runs,
    repair,
    reset_runs,
)
from headtohead.execution.scheduler import Machine, Outcome, execute, final_states, pending
from headtohead.planning.notes import count_are, notes_of, unused_plugin_files
from headtohead.planning.plan import Plan, Stage
from headtohead.planning.planner import Planner
from headtohead.planning.replacing import dropped_note, find_replaced
from headtohead.storage import states
from headtohead.storage.existing import ExistingRuns
from headtohead.storage.paths import checked_path
from headtohead.storage.progress import has_all_results
from headtohead.tracking.command import CommandLoggers
from headtohead.training.reference_points import save_reference_points

if TYPE_CHECKING:
    from headtohead.plugins.logger import Answer
    from headtohead.report.writing import ReportPaths

MISSING_VARIANTS = (
    "{number} left out by --only; the same command without --only trains them, --allow-partial writes a "
    "report without them"
)


@dataclass(frozen=True)
class Result:
    """The outcome of `run`: the experiment's folder, the number of runs by state, the report and its answer."""

    experiment: Path
    states: Counter[str]
    report: ReportPaths | None
    answer: str | None

    @property
    def complete(self) -> bool:
        """Whether every run has a result."""
        return set(self.states) <= states.RESULTS

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import result_html

        return result_html(self.experiment, self.states, self.report)


@dataclass(frozen=True)
class Retraining:
    """Which runs are trained again.

    Attributes:
        fresh: All runs.
        retry: Failed runs.
        repair: Damaged runs.
        stale: STALE runs.
        only: Slugs of the variants that are trained; empty for all. The sweep of ``tune`` has all variants.
    """

    fresh: bool = False
    retry: bool = False
    repair: bool = False
    stale: bool = False
    only: tuple[str, ...] = ()

    def refuse_contradiction(self) -> None:
        """Raise if another option makes no sense with ``fresh``."""
        if not self.fresh:
            return
        for option in ("repair", "stale", "only"):
            if getattr(self, option):
                raise HeadToHeadError(f"--fresh trains every run anew; leave out --{option}")


@dataclass(frozen=True)
class ReportRequest:
    """The folder of reports, whether to write one, and whether to write it even if runs are missing."""

    folder: Path
    wanted: bool = True
    allow_partial: bool = False


@dataclass(kw_only=True)
class Study:
    """The runs of an experiment file on a machine, from validation to the report.

    Attributes:
        loaded: The experiment file.
        root: The folder of run directories.
        target: Names the experiment in printed commands: its file or its name.
        command: Command line that is recorded in ``experiment.json``.
        log: Receives lines of text for the user.
        planner: Plans the study again after a step.
        plan: The present plan; a step that changes run directories plans again.
        outcome: The result of the last training; None before it.
        damages: The damaged runs that the validation found.
        ignored: Runs of other experiments that the plan must not reuse, as ``<experiment>/<directory>``.
        written: The report.
        answer: The answer of the report for loggers.
        look: With sequential seeds, the number of seeds of the present look.
        is_decided: Whether no further look is due.
        has_trained: Whether this call has trained a run.
        done: The steps so far.
    """

    loaded: LoadedExperiment
    root: Path
    target: Path | str
    machine: Machine
    retraining: Retraining
    report: ReportRequest
    loggers: CommandLoggers
    command: str
    log: Callable[[str], object]
    planner: Planner = field(init=False)
    plan: Plan = field(init=False)
    outcome: Outcome | None = None
    look: int | None = None
    is_decided: bool = False
    has_trained: bool = False
    written: ReportPaths | None = None
    answer: Answer | None = None
    damages: list[Damage] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)
    done: list[Step] = field(default_factory=list)

    def validate(self) -> None:
        """Plan the study and find every error of its input; no run directory and no report changes.

        Raises:
            HeadToHeadError: If the file, the data, a plugin or an option is invalid, the report's folder has files of
                others, or the study would replace results or retrain runs of changed plugins without being asked to.
        """
        self.retraining.refuse_contradiction()
        self.loggers.require()
        if self.retraining.repair:
            self.damages = [find_damage(self.folder(name)) for name in self.loaded.experiments]
        damaged = {run for damage in self.damages for run in damage.references}
        self.planner = Planner(self.loaded, self.root)
        if not self._seems_finished():
            self.machine.launcher.warm()  # it starts processes, so the design has no error
        existing = None if self.retraining.fresh else ExistingRuns(self.root, damaged)
        self.plan = self.planner.plan(existing).limited_to(self.retraining.only)
        if self.plan.looks is not None:
            self.look = len(self.plan.design.seeds)
        refuse_precision(self.plan, self.machine.device)
        if self.report.wanted:
            from headtohead.report.folder import checked_report_folder

            checked_report_folder(self.report.folder, self.plan.name)
        reason = find_replaced(self.plan, stale=self.retraining.stale)
        if reason is not None:
            raise HeadToHeadError(reason)
        self._check_plugins()
        for sentence in unused_plugin_files(self.plan):
            self.log(f"note: {sentence}")
        if self.retraining.fresh:
            return  # all runs are archived, whether or not the plan has them
        dropped = dropped_note(self.plan)
        if dropped is not None:
            self.log(f"note: {dropped}")

    def next_step(self) -> Step | None:
        """Return the first step of `STEPS` that is due, or None at the end of the study."""
        for step in STEPS:
            if step.is_due(self):
                return step
        return None

    def run(self, step: Step) -> None:
        """Run a step.

        Raises:
            Interrupted: If the user interrupts it; what has been trained is kept.
        """
        try:
            step.run(self)
        except KeyboardInterrupt:
            self.log(f"interrupted; finished runs are kept, and {self.same_command} resumes")
            self.loggers.abandon()
            raise Interrupted from None
        except BaseException:
            self.loggers.abandon()
            raise
        self.done.append(step)

    def end(self) -> Result:
        """Print why runs have no result and how to continue, wait for the loggers, and return the result."""
        self.loggers.close(self.answer)
        assert self.outcome is not None, "the comparison or its sweep was trained"
        is_compared = COMPARISON in self.done
        if is_compared and self.retraining.only and not self.outcome.complete:
            self.outcome.states = final_states(self.plan, self.plan.selected)
            number = len(self.plan.variants) - len(set(self.retraining.only))
            self.log(MISSING_VARIANTS.format(number=count_are(number, "variant")))
        if is_compared or self.plan.tuning is None:
            self._print_missing_runs(self.plan, self.target)
        else:
            self._print_missing_runs(self.plan.tuning.plan, self.plan.tuning.plan.name)
        self.loggers.finish(self.plan.name, self.target)
        answer = None if self.written is None else self.written.answer
        return Result(self.plan.directory, self.outcome.states, self.written, answer)

    @property
    def same_command(self) -> str:
        """The command that continues this study; with ``--fresh`` it would train anew."""
        return "the same command without --fresh" if self.retraining.fresh else "the same command"

    def folder(self, experiment: str) -> Path:
        """Return the folder of an experiment."""
        return checked_path(self.root, experiment)

    def plan_again(self) -> None:
        """Plan with the present states of run directories; runs of ``--fresh`` are not taken from other experiments."""
        experiments = self.loaded.experiments if self.retraining.fresh else None
        existing = ExistingRuns(self.root, self.ignored, experiments)
        self.plan = self.planner.plan(existing, self.look).limited_to(self.retraining.only)

    def _seems_finished(self) -> bool:
        """Return whether all recorded runs have results, so that this call probably trains nothing."""
        if self.retraining.fresh or self.retraining.stale or self.retraining.repair:
            return False
        return has_all_results(self.folder(self.loaded.name))

    def train(self, plan: Plan) -> None:
        """Train the pending runs of a plan, while loggers follow its folder."""
        if pending(plan):
            self.has_trained = True
            self.loggers.start()
        self.outcome = execute(plan, self.machine, cache_root(), self.command)

    def _check_plugins(self) -> None:
        """Check the variants with outside plugins that will train."""
        plans = [self.plan]
        tuning = self.plan.tuning
        if tuning is not None and not tuning.is_done:
            plans.insert(0, tuning.plan)
        used = [entry for plan in plans for variant in plan.variants for entry in variant.plugins]
        if all(entry.is_built_in for entry in used):
            return
        from headtohead.testing.checks.as_trained import PlannedStack
        from headtohead.testing.checks.before_training import check_before_training

        retrains_finished = self.retraining.retry or self.retraining.stale
        stacks = []
        for plan in plans:
            runs = plan.selected if retrains_finished else pending(plan)
            for members in self.machine.stacks(plan, runs):
                stacks.append(PlannedStack.of(plan, members))
        check_before_training(stacks, cache_root(), self.log)

    def _print_missing_runs(self, plan: Plan, target: Path | str) -> None:
        """Print why runs of a plan have no result, and which command continues."""
        assert self.outcome is not None
        if self.outcome.stopped:
            self.log(self.outcome.stopped)
        directories = [run.directory for run in plan.runs if not run.reused_from]
        for line in failure_lines(plan.directory, directories):
            self.log(line)
        if self.outcome.complete:
            return
        counts = ", ".join(
            f"{number} {state}" for state, number in sorted(self.outcome.states.items())
        )
        status = next_command("status", target, self.root)
        advice = next_step(self.outcome.states, self.same_command)
        self.log(f"not complete: {counts}; {status} shows each; {advice}")


class Step(ABC):
    """An action of a study."""

    @abstractmethod
    def is_due(self, study: Study) -> bool:
        """Return whether the step is the next one, if no earlier step of `STEPS` is due."""

    @abstractmethod
    def run(self, study: Study) -> None:
        """Act; later steps and the end of the study read the states of run directories again."""


class Repair(Step):
    """Archives the damaged runs that the validation found."""

    def is_due(self, study: Study) -> bool:
        """Return whether damaged runs were looked for and are not archived yet."""
        return study.retraining.repair and self not in study.done

    def run(self, study: Study) -> None:
        """Archive damaged runs; reused ones of other experiments stay and are ignored."""
        for damage in study.damages:
            repair(damage, study.log)
            study.ignored |= damage.reused.keys()
        if any(damage.references for damage in study.damages):
            study.plan_again()


class ArchiveStaleRuns(Step):
    """Archives STALE runs, which are trained again."""

    def is_due(self, study: Study) -> bool:
        """Return whether STALE runs are to be trained again and are not archived yet."""
        return study.retraining.stale and self not in study.done

    def run(self, study: Study) -> None:
        """Archive STALE runs; reused ones of other experiments stay and are ignored."""
        plans = [study.plan]
        if study.plan.tuning is not None:
            plans.insert(0, study.plan.tuning.plan)
        for plan in plans:
            study.ignored |= move_stale_runs(plan, study.log)
        study.plan_again()


class ArchiveAllRuns(Step):
    """Archives every run, which is trained anew. The plan of the validation has ignored all of them."""

    def is_due(self, study: Study) -> bool:
        """Return whether the study is to be trained anew and its runs are not archived yet."""
        return study.retraining.fresh and self not in study.done

    def run(self, study: Study) -> None:
        """Archive every run of the study and of its sweep."""
        for name in study.loaded.experiments:
            archive_runs(study.folder(name))


class TuningStep(Step):
    """Trains tuning runs, if their stage of the tuning is the present one.

    Attributes:
        stage: What the tuning runs are for.
        line: What is printed before they are trained.
    """

    stage: ClassVar[Stage]
    line: ClassVar[str]

    def is_due(self, study: Study) -> bool:
        """Return whether the tuning is at this stage and no training has ended without all results."""
        has_failed = study.outcome is not None and not study.outcome.complete
        tuning = study.plan.tuning
        if tuning is None or tuning.is_done or has_failed:
            return False
        return tuning.stage == self.stage

    def run(self, study: Study) -> None:
        """Train the tuning runs, then plan the next stage or choose the settings."""
        assert study.plan.tuning is not None
        sweep = study.plan.tuning.plan
        study.loggers.follow(sweep.directory)
        sweep = reset_runs(sweep, study.log, retry=study.retraining.retry)
        study.log(self.line.format(runs=len(sweep.remaining), experiment=sweep.name))
        study.train(sweep)
        study.plan_again()


class Sweep(TuningStep):
    """Trains every variant with every listed value of ``tune``."""

    stage = Stage.VALUES
    line = "tuning first: {runs} runs of {experiment}"


class WidenedSweep(TuningStep):
    """Trains variants with a further value, because the best one may be outside the values so far."""

    stage = Stage.FURTHER_VALUES
    line = "tuning with further values: {runs} runs of {experiment}"


class FurtherTuningSeeds(TuningStep):
    """Trains the two best settings of variants without a parabola that holds with further seeds."""

    stage = Stage.FURTHER_SEEDS
    line = "tuning with further seeds of the two best settings: {runs} runs of {experiment}"


class Comparison(Step):
    """Trains the variants that are compared."""

    def is_due(self, study: Study) -> bool:
        """Return whether the variants are not trained yet; their settings must be chosen."""
        has_settings = study.plan.tuning is None or study.plan.tuning.is_done
        return has_settings and self not in study.done

    def run(self, study: Study) -> None:
        """Train the pending runs of all variants; with sequential seeds, those of the present look."""
        study.plan = reset_runs(study.plan, study.log, retry=study.retraining.retry)
        for note in notes_of(study.plan):
            study.log(f"note: {note}")
        study.loggers.follow(study.plan.directory)
        study.train(study.plan)


class Look(Step):
    """Judges the main contrasts with the seeds so far, and trains the seeds of the next look if one is undecided."""

    def is_due(self, study: Study) -> bool:
        """Return whether the seeds of a look have results that are not judged yet."""
        is_complete = study.outcome is not None and study.outcome.complete
        has_looks = study.plan.looks is not None and COMPARISON in study.done
        return has_looks and is_complete and not study.is_decided

    def run(self, study: Study) -> None:
        """Print the result of the look; end the looks or train the next one."""
        from headtohead.analysis.findings.design import looks_line
        from headtohead.analysis.study import Analysis
        from headtohead.storage.frames import load_frames

        status = Analysis(load_frames(study.plan.directory)).looks
        assert status is not None
        study.log(looks_line(status))
        if status.next_seeds is None:
            study.is_decided = True
            return
        study.look = status.next_seeds
        study.plan_again()
        study.train(study.plan)


class WriteReport(Step):
    """Writes the report, while loggers still follow the folder: their last pass logs it."""

    def is_due(self, study: Study) -> bool:
        """Return whether the comparison has all results, or the report does not need them."""
        if COMPARISON not in study.done or self in study.done:
            return False
        assert study.outcome is not None
        return study.outcome.complete or study.report.allow_partial or not study.report.wanted

    def run(self, study: Study) -> None:
        """Write the report, unless it is current, and print its answer; if none is wanted, print the command for it."""
        if not study.report.wanted:
            command = next_command("report", study.target, study.root)
            study.log(f"no report was written; {command} writes it")
            return
        _save_reference_points(study)
        from headtohead.report import writing
        from headtohead.report.trackers import tracked_answer

        report = writing.read_report(
            study.plan.directory,
            allow_partial=study.report.allow_partial,
            file=study.loaded.path,  # it may have changed since it was read
        )
        if not study.has_trained:
            study.written = writing.current_files(report, study.report.folder)
        if study.written is None:
            study.written = writing.write_files(report, study.report.folder)
        study.answer = tracked_answer(report, study.report.folder)
        for line in study.written.lines:
            study.log(line)
        study.log(f"report: {study.written.html}")


def _save_reference_points(study: Study) -> None:
    """Compute the reference points that an experiment lacks; a folder that cannot be written has none."""
    folder = study.plan.directory
    try:
        scored = []
        for variant in study.plan.variants:
            scored.append((variant.config, study.plan.prepared[variant.data_hash]))
        save_reference_points(folder, scored)
    except DiskError as error:
        study.log(
            f"note: the report has no reference points; cannot write to '{folder}' ({error.strerror})"
        )


COMPARISON = Comparison()

STEPS: tuple[Step, ...] = (
    Repair(),
    ArchiveStaleRuns(),
    ArchiveAllRuns(),
    Sweep(),
    WidenedSweep(),
    FurtherTuningSeeds(),
    COMPARISON,
    Look(),
    WriteReport(),
)
"""The steps of a study in their order; the first one that is due is next."""
