"""The pages of the components of ``experiments/contested``, from the committed reports that are not withdrawn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from headtohead.plugins.registry import find_entry
from headtohead.storage.metrics import show
from headtohead_judge.paired_tests import Difference, Source
from headtohead_judge.random_effects import MIN_SETTINGS, combine

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


class Comparison(NamedTuple):
    """A component alone, compared with the baseline: the setting, its report, and the contrast of ``answer.json``."""

    setting: str
    report: str
    contrast: Mapping[str, Any]


def withdrawn(reports: Path = REPORTS) -> dict[str, str]:
    """Return why reports are withdrawn, by their names in the folder; empty without any."""
    file = reports.parent / "withdrawn.yaml"
    if not file.is_file():
        return {}
    reasons = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    prefix = f"{reports.name}/"
    return {
        name.removeprefix(prefix): reason
        for name, reason in reasons.items()
        if name.startswith(prefix)
    }


def components_of(slug: str) -> set[str]:
    """Return the pages of the components of a variant."""
    return {page for page, component in COMPONENTS.items() if component.key in slug}


def answer_of(reports: Path, report: str) -> dict[str, Any]:
    """Return the answer of a report."""
    answer: dict[str, Any] = json.loads(
        (reports / report / "answer.json").read_text(encoding="utf-8")
    )
    return answer


def comparisons(page: str, reports: Path = REPORTS) -> list[Comparison]:
    """Return every comparison of a component alone with the baseline, without withdrawn reports."""
    left_out = withdrawn(reports)
    found = []
    for (report, end), setting in SETTINGS.items():
        if report in left_out:
            continue
        for contrast in answer_of(reports, report)["contrasts"]:
            ((left, right), *_) = contrast["pairs"]
            is_alone = components_of(left) == {page} and not components_of(right)
            if contrast["main"] and left.endswith(end) and is_alone:
                found.append(Comparison(setting, report, contrast))
    return found


def interactions(page: str, reports: Path = REPORTS) -> Iterator[str]:
    """Yield a list item for every interaction of a component with another at equal steps."""
    if "equal-steps" in withdrawn(reports):
        return
    for contrast in answer_of(reports, "equal-steps")["contrasts"]:
        both = components_of(contrast["name"])
        if contrast["family"] != "interactions" or page not in both:
            continue
        (other,) = both - {page}
        yield INTERACTION.format(
            title=COMPONENTS[other].title.lower(),
            difference=number(contrast["difference"]),
            interval=interval(contrast["interval"]),
            verdict=contrast["verdict"],
            claim=CLAIMS.get(page) or CLAIMS[other],
        )


INTERACTION = """- Interaction with {title} at equal steps: {difference} ({interval}), {verdict}.
  Above 0, both together gain less than the sum of their gains.
  {claim}."""


def interval(ends: Mapping[str, float]) -> str:
    """Return the ends of an interval."""
    return f"{number(ends['low'])} to {number(ends['high'])}"


def number(value: float) -> str:
    """Return a difference in nats with its sign."""
    return show(value, "test/loss", signed=True)


def answer(found: Sequence[Comparison]) -> str:
    """Return the answer of a page: the settings combined, or the verdicts of fewer settings than can be combined."""
    if len(found) < MIN_SETTINGS:
        return "; ".join(f"{each.contrast['verdict']} ({each.setting})" for each in found) + "."
    combined = combine([difference_of(each.contrast) for each in found])
    return COMBINED.format(
        settings=combined.settings,
        mean=number(combined.mean),
        interval=interval(vars(combined.interval)),
        prediction=interval(vars(combined.prediction)),
    )


COMBINED = (
    "The mean difference over {settings} settings is {mean} ({interval}); in another setting it is expected from "
    "{prediction}."
)


def difference_of(contrast: Mapping[str, Any]) -> Difference:
    """Return the difference of a contrast of ``answer.json`` with its sources of variance."""
    sources = tuple(Source(**source) for source in contrast["sources"])
    seeds = len(contrast["seeds"])
    return Difference("varied", seeds, contrast["difference"], sources, math.nan, math.nan)


def costs(name: str, reports: Path) -> str:
    """Return what a component costs at width 128, as a list item; empty without the report of equal steps."""
    if "equal-steps" in withdrawn(reports):
        return ""
    runs = pd.read_csv(reports / "equal-steps" / "results.csv")
    of_variants = runs.groupby("variant")[["parameters/non_embedding", "flops_per_token"]].first()
    own = next(slug for slug in of_variants.index if components_of(slug) == {name})
    base = next(slug for slug in of_variants.index if not components_of(slug))
    parameters, flops = of_variants.loc[own] / of_variants.loc[base] - 1
    return COSTS.format(parameters=100 * parameters, flops=100 * flops)


COSTS = "- Cost at width 128: non-embedding parameters {parameters:+.1f} %, FLOPs per token {flops:+.1f} %."


PAGE = """# {title}: does it lower the loss of a small character model?

**{answer}**

[{entry}](../reference/{address}): {summary}
Published: {published}.

"""

WITHDRAWN = """The reports of this component are withdrawn, until they are trained again:

{reasons}
"""

RESULTS = """| setting | difference in test loss, nats | 95 % interval | verdict | seeds |
|---|---:|---|---|---:|
{rows}

- Negative differences favour the component. The margin is 0.005. Each interval is one of the simultaneous intervals of
  its report.
- The mean over settings, and the interval of another setting, are those of random effects (DerSimonian and Laird), at
  95 %. All settings but the English sentences are of one text, some with the same seeds. So they are not independent,
  and these two intervals are too short. An untuned learning rate depends on the width alone.
{items}
- One nat per character is 1.44 bits per byte on tiny Shakespeare.
- The design, the tuning of the rates and every seed are in `reports/contested`. To repeat them, the English sentences
  with the text that the first lines of `tatoeba.yaml` make:

```sh
{commands}
```
"""

ROW = "| {setting} | {difference} | {interval} | {verdict} | {seeds} |"


def page(name: str, reports: Path = REPORTS) -> str:
    """Return the page of a component; without a report that is not withdrawn, only why its reports are."""
    component = COMPONENTS[name]
    family, entry = component.entry
    address = f"catalogue/{family}.md#{entry}"
    if family == "feed_forward":
        address = f"plugins.md#{family}{entry}"
    found = comparisons(name, reports)
    head = PAGE.format(
        title=component.title,
        answer=answer(found) if found else "No result: all reports are withdrawn.",
        entry=entry,
        address=address,
        summary=find_entry(*component.entry).entry.summary(),
        published=component.published,
    )
    if not found:
        reasons = [f"- {report}: {reason}" for report, reason in withdrawn(reports).items()]
        return head + WITHDRAWN.format(reasons="\n".join(reasons))
    rows = []
    for setting, _, contrast in found:
        row = ROW.format(
            setting=setting,
            difference=number(contrast["difference"]),
            interval=interval(contrast["interval"]),
            verdict=contrast["verdict"],
            seeds=len(contrast["seeds"]),
        )
        rows.append(row)
    items = [*interactions(name, reports), costs(name, reports)]
    files = dict.fromkeys(each.report for each in found)
    return head + RESULTS.format(
        rows="\n".join(rows),
        items="\n".join(item for item in items if item),
        commands="\n".join(f"h2h run experiments/contested/{file}.yaml" for file in files),
    )


def table(reports: Path = REPORTS) -> str:
    """Return the differences of all components in all settings as a table; a dash where there is none."""
    settings = [*SETTINGS.values()]
    lines = [f"| component | {' | '.join(settings)} |", f"|---|{'---|' * len(settings)}"]
    for name, component in COMPONENTS.items():
        cells = dict.fromkeys(settings, "–")
        for setting, _, contrast in comparisons(name, reports):
            cells[setting] = f"{number(contrast['difference'])} {contrast['verdict']}"
        lines.append(f"| [{component.title}]({name}.md) | {' | '.join(cells.values())} |")
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write the pages into ``docs/judged``, and the table into its ``README.md``."""
    for name in COMPONENTS:
        (folder / f"{name}.md").write_text(page(name), encoding="utf-8")
    index = folder / "README.md"
    before, start, rest = index.read_text(encoding="utf-8").partition("<!-- contested -->\n")
    end = "\n<!-- end of contested"
    _, _, after = rest.partition(end)
    index.write_text(before + start + table() + end + after, encoding="utf-8")
