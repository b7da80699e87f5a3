"""The last sections: statistical methods, and the commands and versions to reproduce the experiment."""

from __future__ import annotations

import re
from pathlib import Path

from headtohead.report.blocks import Block, CodeBlock, Definitions, Details, Heading, Paragraph
from headtohead.report.content import ReportContent
from headtohead.report.looks import METHOD as LOOKS_METHOD
from headtohead.statistics.paired_tests import SIGN_FLIP_SEEDS, few_seeds
from headtohead.storage.metrics import counted

METHOD = (
    "Every contrast is paired by seed: effects of a seed that all variants share cancel. Intervals are t-intervals "
    "over seeds. The 95 % interval is not adjusted; the second interval has the level at which Holm's procedure tests "
    "the contrast, and excludes zero if and only if the difference is significant.",
    "Better and worse: a paired t-test at 5 % after Holm's correction within a family: variants against the baseline, "
    "factor contrasts, interactions, contrasts that the file declares, or the changes between two configurations. The "
    "sign-flip p is not adjusted. Further metrics are described, not tested.",
    "Equivalent: two one-sided t-tests within the margin at 5 %, Holm-adjusted within the family. Without a margin no "
    "contrast is equivalent. An inconclusive contrast does not show equality.",
)


def statistics_blocks(content: ReportContent) -> list[Block]:
    """Return the statistical methods and the limits that follow from the number of seeds."""
    analysis = content.analysis
    floors = [
        f"Family {name}: with {family.tested} contrast{'s' * (family.tested != 1)} and {family.seeds} seeds the "
        f"smallest Holm-adjusted sign-flip p is {family.floor:.3g}; {family.seeds_needed} seeds are needed for "
        "0.05."
        for name, family in analysis.families._asdict().items()
        if family.tested
    ]
    looks = [LOOKS_METHOD] * (analysis.looks is not None)
    seeds = len(analysis.frames.seeds)
    few = []
    if seeds == 1:
        few = ["With a single seed there is no p-value."]
    elif seeds < SIGN_FLIP_SEEDS:
        few = [f"{few_seeds(seeds)}."]
    return [Heading(2, "Statistics", "statistics", "Statistics"), *map(Paragraph, [*METHOD, *looks, *floors, *few])]


def reproduction_blocks(content: ReportContent) -> list[Block]:
    """Return the commands, the experiment file and the recorded versions."""
    record = content.record
    blocks: list[Block] = [
        Heading(2, "Reproduction", "reproduction", "Reproduction"),
        CodeBlock("\n".join(_commands(content)), "sh"),
    ]
    if record.text:
        blocks.append(Details(record.file or "experiment file", (CodeBlock(record.text, "yaml"),)))
    if versions := _versions(content):
        blocks.append(Definitions(tuple((name.replace("_", " "), value) for name, value in versions.items())))
    runs = counted(len(content.analysis.frames.runs), "run")
    footer = f"Written by headtohead from {runs}; experiment planned {record.created}."
    return [*blocks, Paragraph(footer, "footer")]


def _commands(content: ReportContent) -> list[str]:
    record, partial = content.record, " --allow-partial" if content.analysis.allow_partial else ""
    # An experiment that was run with --name is found by its name only.
    file = record.file if record.file and Path(record.file).stem == record.name else None
    return [record.command, f"h2h report {file or record.name}{partial}"]


def _versions(content: ReportContent) -> dict[str, str]:
    """Return the versions at planning; of the platform, only the parts that a result can depend on."""
    versions = {name: str(value) for name, value in content.record.versions.items() if value is not None}
    platform = re.match(r"([A-Za-z]+)-.*?(x86_64|aarch64|arm64|AMD64)", versions.get("platform", ""))
    return {**versions, "platform": " ".join(platform.groups())} if platform else versions
