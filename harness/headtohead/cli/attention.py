"""``h2h attention``: the attention weights of a trained run for a sentence."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option, run_argument, runs_option
from headtohead.cli.output import echo, optional_number, print_table
from headtohead.schema.roles import ROLES

SHADES = " ░▒▓█"


@click.command("attention")
@run_argument
@click.argument("text")
@click.option("--target", help="Decoder input; default: the run's own translation.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    help="Encoder self-attention, decoder self-attention or cross-attention.  [default: cross, else decoder]",
)
@click.option("--layer", type=click.IntRange(0), help="Show only this layer, counted from 0.")
@click.option("--head", type=click.IntRange(0), help="Show only this head, counted from 0.")
@runs_option
@plugin_option
def command(
    run: str, text: str, target: str | None, role: str | None, layer: int | None, head: int | None, runs: Path
) -> None:
    """Show the attention weights of RUN for TEXT as a table with shading.

    RUN is a run's directory or a prefix of its name.
    """
    from headtohead.errors import HeadToHeadError
    from headtohead.execution.loaded import load
    from headtohead.storage.attention_maps import map_tokens

    load_plugins()
    maps = load(run, runs=runs).attention(text, target)
    role = role or ("cross" if "cross" in maps.weights else "decoder")
    if role not in maps.weights:
        raise HeadToHeadError(f"the model has no {role} attention; type --role {' or '.join(maps.weights)}")
    weights = maps.weights[role]
    for name, chosen, count in (("layer", layer, len(weights)), ("head", head, weights.shape[1])):
        if chosen is not None and chosen >= count:
            raise HeadToHeadError(f"{name} {chosen} does not exist; {role} has 0 to {count - 1}")
    rows, columns = map_tokens(maps.record, role)
    note = maps.record.get("map_notes", {}).get(role)
    if note:
        echo(f"{role}: {note}", "")
    for layer_index, head_index in itertools.product(range(len(weights)), range(weights.shape[1])):
        if layer in {None, layer_index} and head in {None, head_index}:
            statistics = maps.record["heads"][role][layer_index][head_index]
            entropy, distance = (optional_number(statistics[name]) for name in ("entropy", "distance"))
            title = f"{role}, layer {layer_index}, head {head_index}"
            echo(f"{title}: entropy {entropy} nats, mean distance {distance} tokens")
            cells = [[_cell(value) for value in row] for row in weights[layer_index, head_index].tolist()]
            lines = [[name, *row] for name, row in zip(rows, cells, strict=True)]
            print_table(["", *columns], lines, right=range(1, 1 + len(columns)))
            echo()


def _cell(weight: float) -> str:
    """Return a weight with two decimals, after a shade for its absolute value."""
    return f"{SHADES[min(len(SHADES) - 1, int(abs(weight) * len(SHADES)))]} {weight:.2f}"
