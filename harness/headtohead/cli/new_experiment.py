"""``h2h new-experiment``: write a commented experiment file for a dataset."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import click

from headtohead.cli.options import load_plugins, plugin_option, set_option
from headtohead_judge.output import echo

if TYPE_CHECKING:  # h2h --help does not import pydantic
    from pydantic.fields import FieldInfo

FILE = Template("""\
# h2h plan $name.yaml shows the cost, h2h run $name.yaml trains and reports.
question: Which positions does a small model of $name need?
base:                        # shared by every variant
  data:
    dataset: $dataset
$data
  model: {d_model: 64, heads: 4, layers: 2, d_ff: 256, dropout: 0.0}   # $architecture
  train: {steps: 400, $batch, lr: 3.0e-3}   # tune: {train.lr: auto} selects a rate for every variant
baseline: {positional: sinusoidal}
design:                      # one change per variant; further axes: attention, masking, train.optimizer, ...
  - one_at_a_time: {positional: [rotary, none]}
seeds: 3                     # more seeds find smaller differences; h2h plan states which
""")

EXAMPLES: dict[str, dict[str, Any]] = {
    "text": {"download": "tinyshakespeare"},
    "mqar": {"levels": ["8x2"], "alphabet": 32},
}
"""Options of a new file if FILE is not given, for datasets that need a file or are too hard for 400 steps."""


@click.command("new-experiment")
@click.argument("dataset")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@set_option("the data section", "header=true")
@plugin_option
def command(dataset: str, file: Path | None, overrides: tuple[str, ...]) -> None:
    """Write a commented experiment file for DATASET, which runs as it is.

    FILE is the file of a dataset such as pairs or text; the experiment file has its name, else that of DATASET, and is
    written to the working directory.
    """
    from headtohead.config.builder import resolve
    from headtohead.config.loading import experiment_name, read_override
    from headtohead.data import cache_root, read_corpus
    from headtohead.errors import HeadToHeadError
    from headtohead.plugins.registry import find_dataset

    load_plugins()
    if Path(dataset).is_file():
        quoted = shlex.quote(dataset)
        raise HeadToHeadError(
            f"'{dataset}' is a file; type h2h new-experiment text {quoted}, or pairs {quoted}"
        )
    fields = find_dataset(dataset).Options.model_fields
    options: dict[str, Any] = {}
    for override in map(read_override, overrides):
        name = ".".join(override.path).removeprefix("data.")
        if name == "dataset":
            raise HeadToHeadError(
                f"the dataset is an argument; type h2h new-experiment {override.value}, without --set dataset"
            )
        options[name] = override.value
    if file:
        options = {"file": str(file)} | options
    elif "file" not in options:
        options = EXAMPLES.get(dataset, {}) | options
    if file and "file" not in fields:
        raise HeadToHeadError(
            f"dataset '{dataset}' reads no file; type h2h new-experiment {dataset}"
        )
    if not options and "file" in fields and fields["file"].default in ("", ()):
        raise HeadToHeadError(
            f"dataset '{dataset}' needs a file; type h2h new-experiment {dataset} FILE"
        )
    config = resolve({"data": {"dataset": dataset, **options}, "train": {"steps": 1}})
    if file:
        read_corpus(config.data, cache_root())  # raises for a file that the dataset cannot read

    is_decoder_only = config.model.architecture == "decoder-only"
    source = file or Path(dataset)
    stem = source.name.partition(".")[0]
    name = experiment_name(Path(f"{stem}.yaml"))
    text = FILE.substitute(
        name=name,
        dataset=dataset,
        data=_option_lines(options, fields),
        architecture="a GPT: decoder-only" if is_decoder_only else "or architecture: decoder-only",
        batch="batch_size: 16" if is_decoder_only else "batch_tokens: 1024",
    )
    path = Path(f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        raise HeadToHeadError(f"'{path}' already exists; delete or rename it") from error
    echo(f"wrote {path}", "", "next:", f"  h2h plan {path}", f"  h2h run {path}")


def _option_lines(options: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> str:
    """Return the lines of a dataset's options: those with a value, then all others as comments with their defaults."""
    from headtohead.config.reference import meaning

    lines = []
    for name, value in options.items():
        lines.append(f"    {name}: {json.dumps(value, ensure_ascii=False)}")
    for name, field in fields.items():
        if name not in options:
            default = json.dumps(field.get_default(call_default_factory=True), ensure_ascii=False)
            lines.append(f"    # {name}: {default}   # {meaning(field)}")
    return "\n".join(lines)
