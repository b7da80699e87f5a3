"""Fields of ``answer.json`` and of the answer of ``h2h judge``: JSON Schemas and the tables of their reference page.

Fields may be added without a new version. A field that is removed, renamed or changes its meaning increments the
version in ``format``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, Field

from headtohead.config.json_schema import without_titles
from headtohead.config.reference import type_words
from headtohead.statistics.verdicts import Verdict

AnswerFamily = Literal["variants", "factors", "interactions", "declared", "added", "taken"]


class AnswerInterval(BaseModel):
    """A confidence interval, in units of the metric."""

    level: float = Field(gt=0, lt=1, description="Confidence level, for example 0.95.")
    low: float | None = Field(description="Lower end.")
    high: float | None = Field(description="Upper end.")


class AnswerContrast(BaseModel):
    """A declared difference, paired by seed."""

    family: AnswerFamily = Field(description="Family of the contrast; its p-values are corrected together.")
    name: str = Field(description="Both sides, left minus right.")
    verdict: Verdict | Literal["significant"] = Field(
        description="Verdict on the difference; significant for interactions, which have no direction."
    )
    reason: str | None = Field(description="Note on the verdict, or why there is none.")
    difference: float | None = Field(description="Mean difference over seeds, in units of the metric.")
    interval: AnswerInterval | None = Field(description="95 % interval of the difference.")
    holm_interval: AnswerInterval | None = Field(
        description="Interval at the level of the contrast's Holm step. It excludes 0 if and only if `holm_p` is at "
        "most 0.05. null for a difference that is equal in too few seeds for a verdict."
    )
    holm_p: float | None = Field(ge=0, le=1, description="p of the paired t-test, adjusted by Holm in its family.")
    seeds: list[int] = Field(description="Seeds that both sides have.")
    metric: str = Field(description="Metric of the contrast, the unit of its differences.")
    expected: str | None = Field(description="Expected result, such as `higher by more than 2`.")
    agreement: Literal["agrees", "different", "disagrees", "inconclusive"] | None = Field(
        description="Whether the difference is as expected."
    )


class AnswerLooks(BaseModel):
    """Sequential seeds: the planned and the taken looks."""

    planned: list[int] = Field(description="Number of seeds of each planned look.")
    taken: list[int] = Field(description="Number of seeds of each look that was taken.")
    level: float = Field(gt=0, lt=1, description="Level of the tests at each look.")
    stopped: Literal["decided", "at_most", "not_ranked"] | None = Field(
        description="Why no seeds are added: no main contrast is inconclusive, the maximum is reached, or contrasts "
        "cannot be tested, for example because runs failed; null if seeds are added."
    )
    undecided: list[str] = Field(description="Names of the inconclusive main contrasts.")
    set_after_results: bool = Field(description="Whether the looks were set or changed after results existed.")


class AnswerTargetVariant(BaseModel):
    """How fast a variant reaches a target."""

    runs: int = Field(ge=0, description="Number of runs.")
    reached: int = Field(ge=0, description="Number of runs that reach the target.")
    median_steps: float | Literal["inf"] | None = Field(description="Median of the steps to the target.")
    median_seconds: float | Literal["inf"] | None = Field(description="Median of the training seconds to the target.")
    seeds_earlier: int = Field(description="Seeds that reach the target in fewer steps than the baseline.")
    seeds_later: int = Field(description="Seeds that reach the target in more steps than the baseline.")
    holm_p: float | None = Field(description="p of the sign test over seeds, adjusted by Holm.")
    verdict: Literal["faster", "slower", "inconclusive"] | None = Field(description="Verdict of the sign test.")
    reason: str | None = Field(description="Why there is no verdict.")


class AnswerTarget(BaseModel):
    """Steps to a target value of a validation metric."""

    metric: str = Field(description="Metric of the target.")
    target: float | Literal["baseline"] = Field(description="Value, or the baseline's final value with the same seed.")
    variants: dict[str, AnswerTargetVariant] = Field(description="Steps and time by variant.")


class AnswerTrend(BaseModel):
    """Whether a variant was still learning at the end of its training."""

    verdict: Literal["still learning", "levelled off", "not judged"] = Field(description="Verdict on the trend.")
    reason: str | None = Field(description="Why the trend is not judged.")
    seeds: int = Field(ge=0, description="Number of runs.")
    loss: float | None = Field(
        description="Fitted validation loss at the start of the last fifth of the steps, in nats."
    )
    fall: float | None = Field(description="Fall of the loss over the last fifth of the steps, in nats.")
    standard_error: float | None = Field(description="Standard error of the fall over seeds, in nats.")
    last_steps: float | None = Field(description="Length of the last fifth, in steps.")


class AnswerGap(BaseModel):
    """A difference in validation loss, as steps of the baseline."""

    contrast: str = Field(description="Name of the contrast.")
    loss_difference: float = Field(description="Difference in validation loss, in nats.")
    baseline_steps: float = Field(description="Steps in which the loss of the baseline falls by as much.")


class AnswerTraining(BaseModel):
    """Whether the runs trained far enough."""

    still_learning: bool = Field(description="Whether at least one variant was still learning.")
    decaying_schedules: list[str] = Field(description="Learning-rate schedules of the study that decay to zero.")
    variants: dict[str, AnswerTrend] = Field(description="Trend by variant.")
    gaps: list[AnswerGap] = Field(description="Differences as steps; empty unless the baseline is still learning.")


class AnswerReferencePoints(BaseModel):
    """Scores without training, on the test set of the baseline."""

    sentences: int = Field(ge=0, description="Number of test sentences.")
    scores: dict[str, dict[str, float]] = Field(description="Scores by reference point and metric.")
    not_better_than_nearest_neighbour: list[str] = Field(
        description="Variants whose BLEU or chrF is not above that of nearest-neighbour translation."
    )


class AnswerFile(BaseModel):
    """The answer of a report."""

    format: Literal["headtohead-answer/1"] = Field(description="Name and version of the format.")
    experiment: str = Field(description="Name of the experiment.")
    question: str = Field(description="Question of the experiment file.")
    answer: str = Field(description="Answer in sentences.")
    stale: list[str] = Field(
        default=[],
        description="What has changed in the experiment file and in plugins since the runs were trained. If this is "
        "not empty, `answer` begins with STALE.",
    )
    cautions: list[str] = Field(description="Warnings beside the answer, a sentence each.")
    setup: str = Field(description="Data, sizes, steps, learning rate and number of seeds in a line.")
    facts: list[str] = Field(description="Facts that qualify the answer, a sentence each.")
    metric: str = Field(description="Primary metric, as in `results.csv`. It is the unit of all differences.")
    margin: float | None = Field(gt=0, description="Smallest difference that matters, in units of the metric.")
    looks: AnswerLooks | None = Field(description="Sequential seeds; null with a fixed number of seeds.")
    incomplete: dict[str, str] = Field(description="Number of missing seeds as text, by variant.")
    scores: dict[str, float | None] = Field(description="Mean of the metric by ranked variant, best first.")
    contrasts: list[AnswerContrast] = Field(description="All declared contrasts.")
    targets: list[AnswerTarget] = Field(description="Steps to the targets of the experiment file.")
    training: AnswerTraining = Field(description="Whether the runs trained far enough.")
    reference_points: AnswerReferencePoints | None = Field(
        description="Scores without training; null if the data is not a translation dataset."
    )


class JudgeSummary(BaseModel):
    """The scores of a variant."""

    variant: str = Field(description="Name of the variant.")
    seeds: int = Field(ge=2, description="Number of seeds.")
    mean: float | None = Field(description="Mean over seeds, in units of the metric.")
    standard_deviation: float | None = Field(description="Standard deviation over seeds, in units of the metric.")


class JudgeEquivalence(BaseModel):
    """The test of equivalence within the margin."""

    holm_p: float | None = Field(description="Larger p of two one-sided tests, adjusted by Holm.")
    interval: AnswerInterval | None = Field(description="It is within the margin if and only if the test rejects.")


class JudgeContrast(JudgeSummary):
    """A variant against the baseline."""

    verdict: Verdict = Field(description="Verdict on the difference.")
    difference: float | None = Field(description="Mean difference from the baseline, in units of the metric.")
    interval: AnswerInterval | None = Field(description="95 % interval of the difference.")
    holm_interval: AnswerInterval | None = Field(description="Interval at the level of the contrast's Holm step.")
    p: float | None = Field(description="p of the t-test: paired, or Welch's.")
    holm_p: float | None = Field(description="p of the t-test, adjusted by Holm.")
    sign_flip_p: float | None = Field(description="p of the sign-flip test, or unpaired of the permutation test.")
    equivalence: JudgeEquivalence | None = Field(description="Test of equivalence; null without a margin.")


class JudgeFile(BaseModel):
    """The answer of ``h2h judge``."""

    format: Literal["headtohead-judge/1"] = Field(description="Name and version of the format.")
    metric: str = Field(description="Metric of the table.")
    higher_is_better: bool = Field(description="Direction of the metric.")
    margin: float | None = Field(description="Smallest difference that matters, in units of the metric.")
    paired: bool = Field(description="Whether variants are compared seed by seed.")
    baseline: JudgeSummary = Field(description="Scores of the baseline.")
    contrasts: list[JudgeContrast] = Field(description="Every other variant against the baseline.")
    looks: list[int] | None = Field(description="Planned numbers of seeds; null without `--looks`.")
    more_seeds: int | None = Field(description="Further seeds per variant until the next look.")
    warnings: list[str] = Field(description="Remarks on the table.")
    exit_code: int = Field(ge=0, le=3, description="Exit code of the command.")


ANSWER_TABLES: dict[str, type[BaseModel]] = {
    "": AnswerFile,
    "contrasts[]": AnswerContrast,
    "contrasts[].interval": AnswerInterval,
    "looks": AnswerLooks,
    "targets[]": AnswerTarget,
    "targets[].variants.VARIANT": AnswerTargetVariant,
    "training": AnswerTraining,
    "training.variants.VARIANT": AnswerTrend,
    "training.gaps[]": AnswerGap,
    "reference_points": AnswerReferencePoints,
}
JUDGE_TABLES: dict[str, type[BaseModel]] = {
    "": JudgeFile,
    "baseline": JudgeSummary,
    "contrasts[]": JudgeContrast,
    "contrasts[].interval": AnswerInterval,
    "contrasts[].equivalence": JudgeEquivalence,
}


def answer_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of `AnswerFile` or `JudgeFile`."""
    schema = without_titles(model.model_json_schema())
    title = schema["properties"]["format"]["const"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def schema_text(model: type[BaseModel]) -> str:
    """Return the text of a schema file."""
    return json.dumps(answer_schema(model), indent=2, ensure_ascii=False) + "\n"


def answer_page() -> str:
    """Return the reference page of both formats."""
    return "\n".join(
        [
            "# Answer files",
            "",
            "Generated by `make docs`. Both files are JSON in UTF-8. `format` holds the name and the version of the "
            "format. A version may get further fields, so ignore unknown fields. A field that is removed, renamed or "
            "changes its meaning increments the version. Numbers that are not finite or not known are null. "
            "Fractions such as exact match are from 0 to 1, BLEU and chrF from 0 to 100, losses in nats per token.",
            "",
            "## answer.json",
            "",
            "`h2h run` and `h2h report` write it beside `index.html`. JSON Schema: "
            "[answer.schema.json](answer.schema.json). Variants are named by their slug, as in the column `variant` "
            "of `results.csv`.",
            "",
            *_tables(ANSWER_TABLES, "answer.json"),
            "## h2h judge",
            "",
            "`h2h judge FILE --answer ANSWER.json` and `h2h judge FILE --format json` write it. JSON Schema: "
            "[judge.schema.json](judge.schema.json).",
            "",
            *_tables(JUDGE_TABLES, "judge"),
        ]
    )


def _tables(tables: dict[str, type[BaseModel]], name: str) -> Iterator[str]:
    for path, model in tables.items():
        if path:
            summary = (model.__doc__ or "").splitlines()[0]
            yield from (f"### `{path}` of {name}", "", summary, "")
        yield from ("| field | type | meaning |", "|---|---|---|")
        for field, info in model.model_fields.items():
            words = type_words(info).replace("nothing", "null").replace("|", "\\|")
            yield f"| `{field}` | {words} | {info.description} |"
        yield ""
