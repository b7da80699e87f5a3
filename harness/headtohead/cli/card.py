"""``h2h card``: judge the component of a plugin file against three others on five tasks, on one page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from string import Template

import click

from headtohead.cli.options import reports_option, runs_option, seeds_option
from headtohead.plugins.families import FAMILIES
from headtohead_judge.output import echo

BASELINES = {family.name: family.rivals for family in FAMILIES.values() if family.rivals}
"""The components that an entry of each family is compared with."""

TASKS = {
    "toy-grammar": "size: 4000, test: 400",  # a translation
    "induction": "longest: 24",
    "copy": "split: length, longest: 10, test_lengths: [1, 15], size: 4000",
    "stack-manipulation": "size: 4000",
    "text": "file: card-text.txt, unit: byte, block: 32, test: 0.05",  # not the test of the baseline's data
}
"""The datasets, none of which is downloaded, with their options."""

FILE = Template("""\
# h2h card $file trains this file if it exists; h2h plan $name.yaml shows the cost.
question: Is the $family '$entry' better than three others on five small tasks?
description: |
  Translation, induction, copying of sequences longer than those of training, operations on a stack, and the next byte
  of an English text: the language reference that comes with Python, in nats per byte, less is better. All variants
  have equal data, steps, batches and learning rate, and as many parameters as the largest (without embeddings).
  `tune: {train.lr: auto}` selects a rate for each variant; it takes about four times as long.
plugins: [$file]
base:
  model: {architecture: decoder-only, d_model: 64, heads: 4, layers: 2, d_ff: 128, dropout: 0.0}
  train: {steps: 600, batch_size: 32, lr: 4.0e-3, schedule: cosine, warmup_steps: 60}
  evaluate: {max_length: 24, unpadded: false}   # tokens of an answer
match: parameters
design:
  - product:
      $family: [$entry, $baselines]
      data:
$data
baseline: {$family: $first, data: *$task}
contrasts:                   # one family with simultaneous intervals
$contrasts
seeds: $seeds
metrics: {primary: test/exact_match, report: [test/loss, valid/loss]}
""")

DATA = Template("        - &$task {dataset: $task, $options}")
CONTRAST = Template("""\
  - {name: $name,
     variant: {$family: $entry, data: *$task}, against: {$family: $other, data: *$task}}""")
LOSS_CONTRAST = Template("""\
  - {name: $name,
     variant: {$family: $entry, data: *$task}, against: {$family: $other, data: *$task}, metric: test/loss}""")

CLAIM = "{entry} instead of {rival} on {task}"
"""The name of a contrast."""

ADVICE = "choose another file with --output"
NOT_ONE = "{file} registers {entries}; h2h card takes a file with one entry of {families}"


@click.command("card")
@click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE"
)
@seeds_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PAGE",
    help="The page. Default: NAME.md.",
)
@click.option("--stale", is_flag=True, help="Retrain the runs of an earlier version of FILE.")
@runs_option
@reports_option
def command(
    file: Path,
    seeds: int | None,
    output: Path | None,
    stale: bool,
    runs: Path,
    reports: Path | None,
) -> None:
    """Train the component NAME of the plugin FILE and three others of its family on five tasks, and write a page.

    The page has the question, the answer, differences with intervals, costs, and how to repeat them. The design is
    written to card-NAME.yaml beside FILE, and the text of a task to card-text.txt; existing files are not changed. The
    plugin is checked first, and the expected time is printed before the first run.
    """
    from headtohead import api
    from headtohead.cli.run import recorded_command
    from headtohead.files import refuse_foreign, write_text, writing
    from headtohead.report.card import card
    from headtohead.report.writing import read_report

    name, text = experiment_of(file)
    page = output or Path(f"{name}.md")
    refuse_foreign(page, lambda content: b"h2h card" in content, ADVICE)
    path = file.with_name(f"card-{name}.yaml")
    for new, content in ((path, text), (file.with_name("card-text.txt"), english_text())):
        if new.exists():
            echo(f"{new} exists and is used; delete it for the default")
            continue
        with writing(new, "copy the plugin to a folder of yours"):
            write_text(new, content)
        echo(f"wrote {new}")
    result = api.run(
        path,
        seeds=seeds,
        runs=runs,
        reports=reports,
        stale=stale,
        tracking=False,
        command=recorded_command(file, runs),
        log=echo,
    )
    if not result.complete:
        sys.exit(1)
    report = read_report(result.experiment, file=path)
    with writing(page, ADVICE):
        write_text(page, card(report, file.read_text(encoding="utf-8")))
    echo(f"page: {page}")


def english_text() -> str:
    """Return the topics of Python's ``help``, every line once, about 330 kB; Python versions differ in them."""
    from pydoc_data.topics import topics

    lines: dict[str, None] = {}
    for name in sorted(topics):
        for line in topics[name].splitlines():
            words = " ".join(line.split())
            if words.strip("|+-=*~^ "):
                lines[words] = None
    return "\n".join(lines)


def experiment_of(file: Path) -> tuple[str, str]:
    """Return the name of the only component of a plugin file, and the text of its experiment."""
    from headtohead.config.labels import listed
    from headtohead.errors import HeadToHeadError
    from headtohead.plugins.registry import use_files
    from headtohead.testing.checks.entries import find_entries

    use_files([file])
    entries = find_entries((), [file])
    if len(entries) != 1 or entries[0].family not in BASELINES:
        registered = listed([entry.label for entry in entries])
        families = listed(list(BASELINES))
        raise HeadToHeadError(NOT_ONE.format(file=file, entries=registered, families=families))
    family, entry = entries[0].family, entries[0].name
    others = BASELINES[family]
    data = []
    contrasts = []
    for task, options in TASKS.items():
        data.append(DATA.substitute(task=task, options=options))
        template = LOSS_CONTRAST if task == "text" else CONTRAST
        for other in others:
            claim = CLAIM.format(entry=entry, rival=rival_name(other), task=task)
            name = json.dumps(claim)
            contrasts.append(
                template.substitute(name=name, family=family, entry=entry, other=other, task=task)
            )
    text = FILE.substitute(
        name=f"card-{entry}",
        file=json.dumps(file.name),
        family=family,
        entry=entry,
        baselines=", ".join(others),
        first=others[0],
        task=next(iter(TASKS)),
        data="\n".join(data),
        contrasts="\n".join(contrasts),
        seeds=6,
    )
    return entry, text


def rival_name(rival: str) -> str:
    """Return what a contrast calls a component of an experiment file.

    >>> rival_name("rotary"), rival_name("{name: window, width: 8}")
    ('rotary', 'window with width 8')
    """
    name, _, options = rival.strip("{}").removeprefix("name: ").partition(", ")
    if not options:
        return name
    return f"{name} with {options.replace(':', '')}"
