"""The last sections: how the statistics were computed, and how to repeat the experiment."""

from __future__ import annotations

import re

from headtohead.report.blocks import Block, CodeBlock, Definitions, Details, Heading, Paragraph
from headtohead.report.content import ReportContent

METHOD = (
    "Every contrast is paired by seed: the same seed on both sides, so that what a seed does to all variants cancels; "
    "intervals are 95 % t-intervals over seeds and are not adjusted.",
    "A verdict is a paired t-test at 5 % after Holm's correction for the number of declared contrasts, variants "
    "against the baseline, factor contrasts and the choices of a path each being a family; the exact sign-flip p "
    "stands beside it unadjusted, and further metrics are described, not tested.",
    "“Could have seen ≥ x” is the minimum detectable effect: the true difference that this many seeds with this "
    "spread find in 80 of 100 studies at the level of Holm's first step, in the largest family that tests the "
    "contrast. No difference detected is not equality.",
)


def statistics_blocks(content: ReportContent) -> list[Block]:
    """Return how the numbers were computed, with the limits of this study's number of seeds."""
    analysis = content.analysis
    families = {"variants": analysis.variants, "factors": analysis.factors}
    if analysis.path:
        families["choices"] = analysis.path.family
    floors = [
        f"Sign-flip floor for {name}: {family.tested} contrast{'s' * (family.tested != 1)} and {family.seeds} seeds "
        f"cannot bring a Holm-adjusted sign-flip p below {family.floor:.3g}; {family.seeds_needed} seeds could pass "
        f"0.05. The minimum detectable effect is {family.mde:.2f} standard deviations of the paired difference."
        for name, family in families.items()
        if family.tested
    ]
    seeds = len(analysis.frames.seeds)
    few = []
    if seeds == 1:
        few = ["One seed: no p-value can be given."]
    elif seeds < 6:
        few = [f"{seeds} seeds: even a single sign-flip test cannot reach 0.05 with fewer than 6."]
    return [Heading(2, "Statistics", "statistics", "Statistics"), *map(Paragraph, [*METHOD, *floors, *few])]


def reproduction_blocks(content: ReportContent) -> list[Block]:
    """Return the commands, the experiment file and the versions that were used."""
    experiment = content.experiment
    blocks: list[Block] = [
        Heading(2, "How to repeat it", "repeat", "Repeat it"),
        CodeBlock("\n".join(_commands(content)), "sh"),
    ]
    if text := experiment.get("text"):
        blocks.append(Details(experiment.get("file") or "experiment file", (CodeBlock(text, "yaml"),)))
    if versions := _versions(content):
        blocks.append(Definitions(tuple((name.replace("_", " "), value) for name, value in versions.items())))
    created = f"; experiment first run {experiment['created']}" if experiment.get("created") else ""
    runs = len(content.analysis.frames.runs)
    return [*blocks, Paragraph(f"Made by headtohead from {runs} run directories{created}.", "footer")]


def _commands(content: ReportContent) -> list[str]:
    name, file = content.experiment["name"], content.experiment.get("file")
    run = content.experiment.get("command") or f"h2h run {file}"
    partial = " --allow-partial" if content.analysis.allow_partial else ""
    return [str(run), f"h2h report {file or name}{partial}"]


def _versions(content: ReportContent) -> dict[str, str]:
    """Return the versions at planning; of the platform, the parts that a result may depend on."""
    recorded = content.experiment.get("versions") or {}
    versions = {name: str(value) for name, value in recorded.items() if value is not None}
    platform = re.match(r"([A-Za-z]+)-.*?(x86_64|aarch64|arm64|AMD64)", versions.get("platform", ""))
    return {**versions, "platform": " ".join(platform.groups())} if platform else versions
