"""The pages of the components of ``experiments/contested``, from the committed reports."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from headtohead.plugins.registry import find_entry
from headtohead.storage.metrics import show
from headtohead_judge.paired_tests import Difference, Source
from headtohead_judge.random_effects import MIN_SETTINGS, combine

ROOT = Path(__file__).parents[2] / "reports"
REPORTS = ROOT / "contested"
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


def withdrawn() -> dict[str, str]:
    """Return why reports of contested components are withdrawn, by the name of the report."""
    reasons = yaml.safe_load((ROOT / "withdrawn.yaml").read_text(encoding="utf-8")) or {}
    prefix = f"{REPORTS.name}/"
    return {
        name.removeprefix(prefix): reason
        for name, reason in reasons.items()
        if name.startswith(prefix)
    }


def components_of(slug: str) -> set[str]:
    """Return the pages of the components of a variant."""
    return {page for page, component in COMPONENTS.items() if component.key in slug}


def contrasts(page: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield setting, report and contrast of every comparison of a component alone with the baseline.

    Withdrawn reports are left out.
    """
    reasons = withdrawn()
    for (report, end), setting in SETTINGS.items():
        if report in reasons:
            continue
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
    """Return a list item for every interaction of a component with another at equal steps; none if it is withdrawn."""
    if "equal-steps" in withdrawn():
        return ""
    lines, answer = (
        "",
        json.loads((REPORTS / "equal-steps" / "answer.json").read_text(encoding="utf-8")),
    )
    for found in answer["contrasts"]:
        if found["family"] == "interactions" and page in (both := components_of(found["name"])):
            (other,) = both - {page}
            title, difference = COMPONENTS[other].title.lower(), number(found["difference"])
            lines += (
                f"- Interaction with {title} at equal steps: {difference} ({interval(found)}), {found['verdict']}.\n"
                "  Above 0, both together gain less than the sum of their gains.\n"
                f"  {CLAIMS.get(page) or CLAIMS[other]}.\n"
            )
    return lines


def interval(found: dict[str, Any]) -> str:
    """Return the ends of the interval of a contrast."""
    ends = found["interval"]
    return f"{number(ends['low'])} to {number(ends['high'])}"


def number(value: float) -> str:
    """Return a difference in nats with its sign."""
    return show(value, "test/loss", signed=True)


def withdrawn_text() -> str:
    """Return a list item for every reason of withdrawn reports, with their settings."""
    reasons = withdrawn()
    settings: dict[str, list[str]] = {}
    for (report, _), setting in SETTINGS.items():
        if report in reasons:
            settings.setdefault(reasons[report], []).append(setting)
    return "".join(f"- Withdrawn ({'; '.join(names)}): {why}\n" for why, names in settings.items())


def combined_text(found: Sequence[dict[str, Any]]) -> str:
    """Return the mean over settings with an interval, and that of a new setting; of few settings each difference."""
    if len(found) < MIN_SETTINGS:
        texts = [
            f"{number(own['difference'])} ({interval(own)}), {own['verdict']}" for own in found
        ]
        return f"{'; '.join(texts)}."
    result = combine([difference_of(own) for own in found])
    mean = f"{number(result.interval.low)} to {number(result.interval.high)}"
    new = f"{number(result.prediction.low)} to {number(result.prediction.high)}"
    return (
        f"Mean over {result.settings} settings: {number(result.mean)} (95 % interval {mean}); "
        f"in a setting that was not studied: {new}."
    )


def difference_of(found: dict[str, Any]) -> Difference:
    """Return a contrast of ``answer.json`` as a difference with its sources of variance."""
    sources = tuple(Source(**source) for source in found["sources"])
    seeds = len(found["seeds"])
    return Difference("varied", seeds, found["difference"], sources, math.nan, math.nan)


def page(name: str) -> str:
    """Return the page of a component."""
    component, rows, files = COMPONENTS[name], [], []
    for setting, report, found in contrasts(name):
        seeds = len(found["seeds"])
        rows.append(
            f"| {setting} | {number(found['difference'])} | {interval(found)} | {found['verdict']} | {seeds} |"
        )
        files += [report] * (report not in files)
    answer = combined_text([found for _, _, found in contrasts(name)])
    runs = pd.read_csv(REPORTS / "equal-steps" / "results.csv")
    costs = runs.groupby("variant")[["parameters/non_embedding", "flops_per_token"]].first()
    own = next(slug for slug in costs.index if components_of(slug) == {name})
    base = next(slug for slug in costs.index if not components_of(slug))
    more = [f"{100 * (ratio - 1):+.1f} %" for ratio in costs.loc[own] / costs.loc[base]]
    summary = find_entry(*component.entry).entry.summary()
    family, entry = component.entry
    address = (
        f"plugins.md#{family}{entry}"
        if family == "feed_forward"
        else f"catalogue/{family}.md#{entry}"
    )
    commands = "\n".join(f"h2h run experiments/contested/{file}.yaml" for file in files)
    table = "\n".join(rows)
    if not rows:
        return f"""# {component.title}: does it lower the loss of a small character model?

**No answer: the reports on it are withdrawn.**

[{entry}](../reference/{address}): {summary}
Published: {component.published}.

{withdrawn_text()}- Cost at width 128: non-embedding parameters {more[0]}, FLOPs per token {more[1]}.
"""
    return f"""# {component.title}: does it lower the loss of a small character model?

**{answer}**

[{entry}](../reference/{address}): {summary}
Published: {component.published}.

| setting | difference in test loss, nats | interval | verdict | seeds |
|---|---:|---|---|---:|
{table}

{withdrawn_text()}- Negative differences favour the component. Intervals of a report are simultaneous at 95 %; the
  margin is 0.005. No difference shown does not mean equal.
- All settings but the English sentences are of one text, some with the same seeds, so they are not independent. An
  untuned learning rate depends on the width alone.
- All models have 4 layers. In the setting of equal steps, they train for 2,000 steps of 12 blocks of 64 characters, 1.5
  passes over the text; in the others for 1,000, and they still learn at the end. In equal time, slower models train for
  fewer steps.
{interactions(name)}- One nat per character is 1.44 bits per byte on tiny Shakespeare.
- Cost at width 128: non-embedding parameters {more[0]}, FLOPs per token {more[1]}.
- Earlier versions were reported: equal steps with 1,000 steps and 4, then 12 seeds; equal parameters, equal time and
  English sentences with 6 seeds and another weight decay. The tests do not correct for these looks.
- The design, the tuning of the rates and every seed are in `reports/contested`. To repeat them, the English sentences
  with the text that the first lines of `tatoeba.yaml` make:

```sh
{commands}
```
"""


def table() -> str:
    """Return the differences of all components in all settings as a table, and which reports are withdrawn."""
    found = {
        name: {setting: contrast for setting, _, contrast in contrasts(name)} for name in COMPONENTS
    }
    settings = [*SETTINGS.values()]
    lines = [f"| component | {' | '.join(settings)} |", f"|---|{'---|' * len(settings)}"]
    for name, by_setting in found.items():
        cells = [
            f"{number(contrast['difference'])} {contrast['verdict']}" if contrast else "–"
            for contrast in map(by_setting.get, settings)
        ]
        lines.append(f"| [{COMPONENTS[name].title}]({name}.md) | {' | '.join(cells)} |")
    return "\n".join([*lines, "", withdrawn_text()]).rstrip()


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
