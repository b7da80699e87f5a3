"""The pages of the components of ``experiments/contested``, from the committed reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead.plugins.registry import find_entry
from headtohead.storage.metrics import show

REPORTS = Path(__file__).parents[2] / "reports" / "contested"
SETTINGS = {
    ("equal-steps", ""): "equal steps, width 128",
    ("equal-parameters", ""): "equal parameters, width 64",
    ("equal-time", ""): "equal time, width 64",
    ("tatoeba", ""): "English sentences, width 64",
    ("sizes", "d_model-32"): "untuned rate, width 32",
    ("sizes", "d_model-64"): "untuned rate, width 64",
    ("sizes", "d_model-128"): "untuned rate, width 128",
}
"""Reports, with the end of the names of their variants, and what they hold equal."""


@dataclass(frozen=True)
class Component:
    """A judged component: its entry, what distinguishes the names of its variants, and what was published."""

    title: str
    entry: tuple[str, str]
    key: str
    published: str = "contested in the threads of value residual and gate"


COMPONENTS = {
    "value-residual": Component(
        "Value residual",
        ("attention", "value-residual"),
        "value-residual",
        "−0.0151 bits per byte (parameter-golf, thread 413); −0.0010 (thread 1859)",
    ),
    "attention-gate": Component(
        "Attention output gate",
        ("attention", "gated"),
        "gated",
        "−0.0032 bits per byte (parameter-golf, thread 413); −0.0005 (thread 2005); no improvement (nanochat's log)",
    ),
    "exclusive-self-attention": Component(
        "Exclusive self-attention",
        ("attention", "exclusive"),
        "exclusive",
        "3.2832 to 3.2787 nats per subword, 10 runs (modded-nanogpt, thread 264); +0.0015 bits per byte "
        "(parameter-golf, thread 1125)",
    ),
    "smear": Component("Smear", ("attention", "smear"), "smear"),
    "partial-rotary": Component(
        "A quarter of the components rotated", ("positional", "rotary"), "rotary-fraction-0.25"
    ),
    "relu2": Component("ReLU squared instead of GELU", ("feed_forward", "relu2"), "relu2"),
    "swiglu": Component("SwiGLU instead of GELU", ("feed_forward", "swiglu"), "swiglu"),
}
"""The components by the names of their pages."""


CLAIMS = {
    "value-residual": "Thread 413 of parameter-golf claims that the gains of both add up",
    "exclusive-self-attention": "Thread 317 of modded-nanogpt claims that exclusive self-attention makes the gate "
    "unnecessary",
}
"""Published claims on the attention gate beside another component."""


def components_of(slug: str) -> set[str]:
    """Return the pages of the components of a variant."""
    return {page for page, component in COMPONENTS.items() if component.key in slug}


def contrasts(page: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield setting, report and contrast of every comparison of a component alone with the baseline."""
    for (report, end), setting in SETTINGS.items():
        answer = json.loads((REPORTS / report / "answer.json").read_text(encoding="utf-8"))
        for found in answer["contrasts"]:
            ((left, right), *_) = found["pairs"]
            if (
                found["main"]
                and left.endswith(end)
                and (components_of(left), components_of(right)) == ({page}, set())
            ):
                yield setting, report, found


def interactions(page: str) -> str:
    """Return a list item for every interaction of a component with another at equal steps."""
    lines, answer = (
        "",
        json.loads((REPORTS / "equal-steps" / "answer.json").read_text(encoding="utf-8")),
    )
    for found in answer["contrasts"]:
        if found["family"] == "interactions" and page in (both := components_of(found["name"])):
            (other,) = both - {page}
            title, difference = COMPONENTS[other].title.lower(), number(found["difference"])
            lines += (
                f"- Interaction with {title} at equal steps: {difference} ({interval(found)}), {found['direction']}.\n"
                "  Above 0, both together gain less than the sum of their gains.\n"
                f"  {CLAIMS.get(page) or CLAIMS[other]}.\n"
            )
    return lines


def interval(found: dict[str, Any]) -> str:
    """Return the level and the ends of the interval of a contrast."""
    ends = found["interval"]
    return f"{100 * ends['level']:.4g} %: {number(ends['low'])} to {number(ends['high'])}"


def number(value: float) -> str:
    """Return a difference in nats with its sign."""
    return show(value, "test/loss", signed=True)


def verdict(found: dict[str, Any]) -> str:
    """Return the verdict on direction and size."""
    beyond = {"beyond": ", by more than 0.005", "within": ", by less than 0.005"}
    return f"{found['direction']}{beyond.get(found['size'], '')}"


def page(name: str) -> str:
    """Return the page of a component."""
    component, rows, counts, files = COMPONENTS[name], [], Counter[str](), []
    for setting, report, found in contrasts(name):
        seeds = len(found["seeds"])
        rows.append(
            f"| {setting} | {number(found['difference'])} | {interval(found)} | {verdict(found)} | {seeds} |"
        )
        counts[found["direction"]] += 1
        files += [report] * (report not in files)
    settings = f"{len(rows)} setting{'s' if len(rows) > 1 else ''}"
    answer = ", ".join(f"{direction} in {count}" for direction, count in counts.items())
    runs = pd.read_csv(REPORTS / "equal-steps" / "results.csv")
    costs = runs.groupby("variant")[["parameters/non_embedding", "flops_per_token"]].first()
    own = next(slug for slug in costs.index if components_of(slug) == {name})
    base = next(slug for slug in costs.index if not components_of(slug))
    more = [f"{100 * (ratio - 1):+.1f} %" for ratio in costs.loc[own] / costs.loc[base]]
    steps = pd.read_csv(REPORTS / "equal-time" / "results.csv").groupby("variant")["steps"].first()
    slower = [
        steps.max() / count for slug, count in steps.items() if components_of(str(slug)) == {name}
    ]
    time = "".join(f", time of a step at width 64 {100 * (ratio - 1):+.0f} %" for ratio in slower)
    summary = find_entry(*component.entry).entry.summary()
    family, entry = component.entry
    address = (
        f"plugins.md#{family}{entry}"
        if family == "feed_forward"
        else f"catalogue/{family}.md#{entry}"
    )
    commands = "\n".join(f"h2h run experiments/contested/{file}.yaml" for file in files)
    table = "\n".join(rows)
    return f"""# {component.title}: does it lower the loss of a small character model?

**Of {settings}: {answer}.**

[{entry}](../reference/{address}): {summary}
Published: {component.published}.

| setting | difference in test loss, nats | interval | verdict | seeds |
|---|---:|---|---|---:|
{table}

- Negative differences favour the component. Intervals have the levels of Holm's correction within the tests of a report
  that answer the same question. "More than 0.005" rests on a second interval, which the report has. Undetected does
  not mean equal.
- All settings but the English sentences are of one text, some with the same seeds, so they are not independent. An
  untuned learning rate depends on the width alone.
- All models have 4 layers. In the setting of equal steps, they train for 2,000 steps of 12 blocks of 64 characters, 1.5
  passes over the text; in the others for 1,000, and they still learn at the end. In equal time, slower models train for
  fewer steps.
{interactions(name)}- One nat per character is 1.44 bits per byte on tiny Shakespeare.
- Cost at width 128: non-embedding parameters {more[0]}, FLOPs per token {more[1]}{time}.
- Earlier versions were reported: equal steps with 1,000 steps and 4, then 12 seeds; equal parameters, equal time and
  English sentences with 6 seeds and another weight decay. The tests do not correct for these looks.
- The design, the tuning of the rates and every seed are in `reports/contested`. To repeat them, the English sentences
  with the text that the first lines of `tatoeba.yaml` make:

```sh
{commands}
```
"""


def table() -> str:
    """Return the differences of all components in all settings as a table."""
    found = {
        name: {setting: contrast for setting, _, contrast in contrasts(name)} for name in COMPONENTS
    }
    settings = [*SETTINGS.values()]
    lines = [f"| component | {' | '.join(settings)} |", f"|---|{'---|' * len(settings)}"]
    for name, by_setting in found.items():
        cells = [
            f"{number(contrast['difference'])} {contrast['direction']}" if contrast else "–"
            for contrast in map(by_setting.get, settings)
        ]
        lines.append(f"| [{COMPONENTS[name].title}]({name}.md) | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write the pages into ``docs/judged``, and the table into its ``README.md``."""
    for name in COMPONENTS:
        (folder / f"{name}.md").write_text(page(name), encoding="utf-8")
    index = folder / "README.md"
    before, start, rest = index.read_text(encoding="utf-8").partition("<!-- contested -->\n")
    index.write_text(
        before
        + start
        + table()
        + "\n<!-- end of contested"
        + rest.partition("<!-- end of contested")[2]
    )
