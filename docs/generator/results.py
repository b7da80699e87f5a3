"""The pages of ``docs/results``: a heat map of all committed differences, and a card per change.

A change is a field with its value before and after, such as positional: sinusoidal → rotary. Everything is read from
``answer.json`` and ``results.csv`` of the committed reports that are not withdrawn. A setting in which all scores are
the lowest or highest possible ones is shown as "cannot tell", and neither counted nor averaged.

``python docs/generator/results.py`` writes the pages; ``make docs`` writes them with the other generated pages.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from headtohead.config.clauses import change_clause
from headtohead.config.labels import listed, text
from headtohead.errors import HeadToHeadError
from headtohead.figures import style
from headtohead.figures.rows import Row, row_figure
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import find_entry
from headtohead.storage.metrics import counted, readable, show, with_unit
from headtohead_judge.paired_tests import Difference, Source
from headtohead_judge.random_effects import MIN_SETTINGS, CombinedSettings, combine
from headtohead_judge.verdicts import CANNOT_TELL

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
RESULTS = ROOT / "docs" / "results"

NOT_COMPONENTS = ("train.", "data", "match", "size", "recipe")
"""Beginnings of fields that are no component of a model; their changes have no card."""

PUBLISHED = ("quickstart", "architectures", "contested/components-shakespeare-1")
"""Reports with their page as a browser opens it in ``docs/results``."""

DEMO = "demo/"
"""Folder of the report of ``make demo``, which is not committed."""

CARD_STUDY = "card-"
"""Beginning of the names of the studies of ``h2h card``."""

FIGURES = "*-[0-9].svg"
"""Names of the figures of cards."""

NOT_CARDS = ("README.md", "records.md", "noise.md")
"""Pages of the folder that are no card."""

OF_BASELINE = "baseline-"
"""Beginning of a value of ``match`` by which every variant has the size of the baseline."""

SETTLED = {"better": "better", "worse": "worse", "larger": "other", "smaller": "other"}
SETTLED |= {"equivalent": "equivalent"}
"""The class of a verdict by its direction; the cell of another direction is hatched."""


@dataclass(frozen=True)
class Setting:
    """Where a difference was measured: data, size and training; its text is the head of a column.

    A difference that is an average has every value of its parts, such as ``2 + 2, or 5`` layers.
    """

    data: str
    width: str
    layers: str
    steps: str
    passes: str
    matched: str
    tuned: tuple[str, ...]
    parts: frozenset[tuple[str, ...]]
    """Data, size and steps of each part; parts of a report with equal ones can share runs."""

    @classmethod
    def of(cls, parts: Sequence[Mapping[str, Any]]) -> Setting:
        """Return the setting of a contrast of ``answer.json``, from those of its parts."""
        tuned: dict[str, None] = {}
        for part in parts:
            tuned.update(dict.fromkeys(part["tuned"]))
        return cls(
            data=_distinct([part["data"] for part in parts]),
            width=_distinct([str(part["width"]) for part in parts]),
            layers=", or ".join(
                dict.fromkeys(" + ".join(map(str, part["layers"])) for part in parts)
            ),
            steps=_distinct([f"{part['steps']:,}" for part in parts]),
            passes=_distinct([f"{part['passes']:.2g}" for part in parts if part["passes"]]),
            matched=_distinct([part["matched"] for part in parts if part["matched"]]),
            tuned=tuple(tuned),
            parts=frozenset(
                (part["data"], str(part["width"]), str(part["layers"]), str(part["steps"]))
                for part in parts
            ),
        )

    @property
    def lines(self) -> list[str]:
        """The setting as lines of a cell."""
        unit = "layer" if self.layers == "1" else "layers"
        lines = [self.data, f"width {self.width}, {self.layers} {unit}", f"{self.steps} steps"]
        if self.passes:
            unit = "pass" if self.passes == "1" else "passes"
            lines[-1] += f", {self.passes} {unit}"
        if self.matched:
            lines.append(f"equal {self.matched.removeprefix(OF_BASELINE)}")
        if self.tuned:
            names = [field.rpartition(".")[2].replace("lr", "rates") for field in self.tuned]
            lines.append(f"tuned {listed(names)}")
        return lines


def _distinct(values: Sequence[str]) -> str:
    """Return the distinct values as text, in their order."""
    return listed(list(dict.fromkeys(values))) if values else ""


@dataclass(frozen=True)
class Result:
    """A judged contrast of one change.

    Attributes:
        report: The name of its report.
        setting: Where the difference was measured.
        contrast: Its fields of ``answer.json``.
        name: The change as people call it.
    """

    report: str
    setting: Setting
    contrast: Mapping[str, Any]
    name: str

    @property
    def change(self) -> tuple[str, str, str]:
        """The field, and its value before and after, as text."""
        change = self.contrast["change"]
        return change["field"], text(change["from"]), text(change["to"])

    @property
    def metric(self) -> str:
        """The metric of the difference."""
        return str(self.contrast["metric"])

    @property
    def can_tell(self) -> bool:
        """Whether the scores can differ: not all are the lowest or highest possible ones."""
        return bool(self.contrast["direction"] != CANNOT_TELL)

    @property
    def difference(self) -> str:
        """The difference with its sign; where the scores cannot tell, what all of them are."""
        if not self.can_tell:
            return f"{readable(self.metric)}: {self.contrast['reason']}"
        return show(self.contrast["difference"], self.metric, signed=True)

    @property
    def interval(self) -> str:
        """The ends of the interval; empty where the scores cannot tell."""
        if not self.can_tell:
            return ""
        ends = self.contrast["interval"]
        low = show(ends["low"], self.metric, signed=True)
        high = show(ends["high"], self.metric, signed=True)
        return f"{low} to {high}"

    @property
    def estimate(self) -> Difference:
        """The difference with its sources of variance."""
        sources = tuple(Source(**source) for source in self.contrast["sources"])
        seeds = len(self.contrast["seeds"])
        return Difference("varied", seeds, self.contrast["difference"], sources, math.nan, math.nan)


def withdrawn(reports: Path) -> dict[str, str]:
    """Return why reports are withdrawn, by their names; empty without any."""
    file = reports / "withdrawn.yaml"
    if not file.is_file():
        return {}
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


def committed_answers(reports: Path = REPORTS) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each report that is not withdrawn, with the content of its ``answer.json``."""
    left_out = withdrawn(reports)
    for file in sorted(reports.rglob("answer.json")):
        report = file.parent.relative_to(reports).as_posix()
        if report not in left_out and not report.startswith(DEMO):
            yield report, json.loads(file.read_text(encoding="utf-8"))


def results(reports: Path = REPORTS) -> list[Result]:
    """Return every judged main contrast of a component, report by report, without withdrawn reports."""
    results = []
    for report, answer in committed_answers(reports):
        for contrast in answer["contrasts"]:
            if _is_shown(contrast):
                name = _name(contrast, answer["contrasts"])
                settings = [answer["settings"][against] for _, against in contrast["pairs"]]
                setting = Setting.of(settings)
                results.append(Result(report, setting, contrast, name))
    return results


def _name(contrast: Mapping[str, Any], contrasts: Sequence[Mapping[str, Any]]) -> str:
    """Return the change of a contrast as people call it.

    A declared contrast can have any name: it is called like another contrast of the same change, the one with the
    shortest name. A name that also has other fields, after a comma or in parentheses, does not count. Without any, it
    is called by its values.
    """
    if contrast["family"] != "declared":
        return str(contrast["name"])
    change = contrast["change"]
    names = []
    for other in contrasts:
        is_alike = other["family"] != "declared" and other.get("change") == change
        if is_alike and not re.search(r"[(,]", other["name"]):
            names.append(str(other["name"]))
    by_values = change_clause(text(change["to"]), text(change["from"]))
    return min(names, key=len, default=by_values)


def _is_shown(contrast: Mapping[str, Any]) -> bool:
    """Return whether a contrast has a cell: a main contrast of one component.

    It has an interval and its sources, or its scores cannot tell.
    """
    change = contrast.get("change")
    if not contrast["main"] or not change or change["field"].startswith(NOT_COMPONENTS):
        return False
    if contrast["direction"] == CANNOT_TELL:
        return True
    return bool(contrast["interval"] and contrast["sources"])


def slug(change: tuple[str, str, str]) -> str:
    """Return the name of the page of a change."""
    words = re.sub(r"[^a-z0-9]+", "-", " ".join(change).lower())
    return words.strip("-")


def by_change(results_shown: Sequence[Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Return the results of each change, the most studied change first."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results_shown:
        groups.setdefault(result.change, []).append(result)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return dict(ordered)


CELL = '{difference} {metric}<br>{interval}<br><span class="{kind}">{verdict}</span>'
NO_VERDICT_CELL = '{difference}<br><span class="open">{verdict}</span>'


def heat_map(results_shown: Sequence[Result]) -> str:
    """Return the table of all results, a row per change and a column per report and setting.

    The class of a verdict is its colour on the site; elsewhere the table has the verdict in words alone.
    """
    if not results_shown:
        return "No report has a result."
    columns = list(dict.fromkeys((result.report, result.setting) for result in results_shown))
    heads = []
    for report, setting in columns:
        heads.append("<br>".join([*setting.lines, f"`{report}`"]))
    lines = [f"| change | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
    for change, group in by_change(results_shown).items():
        cells: dict[tuple[str, Setting], list[Result]] = {}
        for result in group:
            cells.setdefault((result.report, result.setting), []).append(result)
        row = [f"[{group[0].name}]({slug(change)}.md)"]
        row += [_cells(cells.get(column, [])) for column in columns]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _cells(group: Sequence[Result]) -> str:
    """Return the results of a change in a column; several ones have their names in the report."""
    if len(group) < 2:
        return "".join(map(_cell, group))
    return "<br>".join(f"{result.contrast['name']}:<br>{_cell(result)}" for result in group)


def _cell(result: Result) -> str:
    """Return the cell of a result: difference, interval and verdict, which has the class of its direction.

    Where the scores cannot tell, it has what all of them are in place of the difference.
    """
    if not result.can_tell:
        return NO_VERDICT_CELL.format(
            difference=result.difference, verdict=result.contrast["direction"]
        )
    return CELL.format(
        kind=SETTLED.get(result.contrast["direction"], "open"),
        difference=result.difference,
        metric=readable(result.metric),
        interval=result.interval,
        verdict=result.contrast["verdict"],
    )


def combined(group: Sequence[Result]) -> CombinedSettings | None:
    """Return the settings of a change in one metric combined; None if `_why_not_combined` has a reason."""
    if _why_not_combined(group):
        return None
    return combine([result.estimate for result in group])


def _why_not_combined(group: Sequence[Result]) -> str:
    """Return the sentence on why settings in one metric are not combined; empty if they are."""
    if shares_runs(group):
        return SHARED
    if len(group) < MIN_SETTINGS:
        number = counted(len(group), "setting").capitalize()
        return SINGLE.format(number=number, metric=readable(group[0].metric))
    if not all(result.estimate.error > 0 for result in group):
        return CONSTANT
    return ""


def shares_runs(group: Sequence[Result]) -> bool:
    """Return whether results of a report have the same data, size and steps, so that they can share runs."""
    trained: set[tuple[str, ...]] = set()
    for result in group:
        for part in result.setting.parts:
            if (result.report, *part) in trained:
                return True
        trained.update((result.report, *part) for part in result.setting.parts)
    return False


COMBINED = (
    "Over {settings} settings, the mean difference in {metric} is {mean} ({interval}). In another setting it is "
    "expected from {prediction}."
)
SINGLE = "{number} in {metric}: too few to say what another setting would give."
NOT_COUNTED = (
    "{number} cannot tell, because all scores there are the lowest or highest possible ones, and {verb} "
    "not counted."
)
CONSTANT = "Its settings are not combined, because a difference that is the same in every seed has no variance."
SHARED = "Its settings are not combined, because some are from one report and can share runs."


def answer(group: Sequence[Result]) -> str:
    """Return the sentences of a card: on the settings of the metric that most have, and on those that cannot tell."""
    metrics = metrics_of(group)
    if not metrics:
        return _sentence(group[0])
    measured = in_metric(group, metrics[0])
    sentences = _sentences(measured)
    not_counted = sum(not result.can_tell for result in group)
    if not_counted:
        number = counted(not_counted, "setting")
        verb = "is" if not_counted == 1 else "are"
        sentences += f" {NOT_COUNTED.format(number=number.capitalize(), verb=verb)}"
    return sentences


def _sentences(measured: Sequence[Result]) -> str:
    """Return the two sentences on settings in one metric: combined, or the first one alone and why."""
    metric = measured[0].metric
    together = combined(measured)
    if together is None:
        return f"{_sentence(measured[0])} {_why_not_combined(measured)}"
    return COMBINED.format(
        settings=together.settings,
        metric=readable(metric),
        mean=show(together.mean, metric, signed=True),
        interval=_ends(together.interval.low, together.interval.high, metric),
        prediction=_ends(together.prediction.low, together.prediction.high, metric),
    )


def _sentence(result: Result) -> str:
    """Return the sentence of the report on a result; if it has none, its verdict as a sentence."""
    contrast = result.contrast
    if contrast.get("sentence"):
        return str(contrast["sentence"])
    return f"{result.name}: {contrast['verdict']} ({result.difference}, {result.interval})."


def _ends(low: float, high: float, metric: str) -> str:
    """Return the ends of an interval."""
    return f"{show(low, metric, signed=True)} to {show(high, metric, signed=True)}"


def figure(group: Sequence[Result], metric: str) -> str:
    """Return the plot of the differences of a change in one metric as SVG: intervals, and the settings combined."""
    rows = []
    measured = in_metric(group, metric)
    for result in measured:
        ends = result.contrast["interval"]
        lines = result.setting.lines
        is_settled = result.contrast["direction"] in SETTLED
        row = Row(
            ", ".join(lines[:3]),
            f"{result.difference}  {result.contrast['direction']}",
            result.contrast["difference"],
            ends["low"],
            ends["high"],
            is_strong=is_settled,
        )
        rows.append(row)
    together = combined(measured)
    if together is not None:
        mean, interval, prediction = together.mean, together.interval, together.prediction
        shown = show(mean, metric, signed=True)
        rows.append(Row("mean of the settings", shown, mean, interval.low, interval.high))
        expected = _ends(prediction.low, prediction.high, metric)
        rows.append(Row("another setting", expected, mean, prediction.low, prediction.high))
    drawn, (axes,) = row_figure(rows, f"difference in {with_unit(metric)}")
    with style.drawing():
        axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
    return (
        style.to_svg(drawn, metric, title=f"Difference in {with_unit(metric)} in every setting")
        + "\n"
    )


CARD = """# {name}

**{answer}**

{component}

{figures}

| setting | difference | 95 % interval | verdict | p | seeds | parameters | FLOPs | report |
|---|---:|---|---|---:|---:|---:|---:|---|
{rows}

Intervals are those of the reports, simultaneous within a report. Parameters (without embeddings) and FLOPs per
token are those of the changed model against the other one. Settings are combined by random effects (DerSimonian and
Laird, with the interval of Hartung and Knapp). Settings on one text are not independent, so that these two
intervals are too short.

{repeat}{generated}
"""
GENERATED = "Generated by `make docs` from the committed reports."
REPEAT = """To repeat it:

```sh
{commands}
```

"""
ROW = (
    "| {setting} | {difference} | {interval} | {verdict} | {p} | {seeds} | {parameters} | {flops} "
    "| {report} |"
)


def _linked(report: str) -> str:
    """Return the name of a report, with a link if its page is in the folder of the cards."""
    name = f"`{report}`"
    return f"[{name}]({published_page(report)})" if report in PUBLISHED else name


def published_page(report: str) -> str:
    """Return the name of the published page of a report, which may be in a folder of reports."""
    _, _, name = report.rpartition("/")
    return f"{name}.html"


def card(
    change: tuple[str, str, str],
    group: Sequence[Result],
    reports: Path = REPORTS,
    folder: Path = RESULTS,
) -> str:
    """Return the page of a change, which is written into the folder."""
    rows = []
    rows_of = Counter((result.report, result.setting) for result in group)
    for result in group:
        report = _linked(result.report)
        if rows_of[result.report, result.setting] > 1:
            report += f": {result.contrast['name']}"
        parameters, flops = costs(result, reports)
        difference = result.difference
        if result.can_tell:
            difference += f" {readable(result.metric)}"
        row = ROW.format(
            setting=", ".join(result.setting.lines),
            difference=difference,
            interval=result.interval,
            verdict=result.contrast["verdict"],
            p=_p(result.contrast["adjusted_p"]),
            seeds=len(result.contrast["seeds"]),
            parameters=parameters,
            flops=flops,
            report=report,
        )
        rows.append(row)
    figures = []
    for number in range(len(metrics_of(group))):
        figures.append(f"![Differences of every setting](figures/{slug(change)}-{number}.svg)")
    return CARD.format(
        name=_capital(group[0].name),
        answer=answer(group),
        component=_component(change, folder),
        figures="\n\n".join(figures),
        rows="\n".join(rows),
        repeat=_repeat(group, reports),
        generated=GENERATED,
    )


def metrics_of(group: Sequence[Result]) -> list[str]:
    """Return the metrics of the results that can tell, that of most results first."""
    counts = Counter(result.metric for result in group if result.can_tell)
    return [metric for metric, _ in counts.most_common()]


def in_metric(group: Sequence[Result], metric: str) -> list[Result]:
    """Return the results in a metric that can tell."""
    return [result for result in group if result.can_tell and result.metric == metric]


def _capital(name: str) -> str:
    """Return a name with a capital first letter."""
    return name[:1].upper() + name[1:]


def _p(value: float | None) -> str:
    """Return an adjusted p."""
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


VALUES = "`{field}`: {before} → {after}."
VALUES_WITH_PAGE = (
    "`{field}`: {before} → {after}. Its author's page, with the source: [{name}]({name}.md)."
)


def _component(change: tuple[str, str, str], folder: Path) -> str:
    """Return the formula of a component with the link to the catalogue.

    Of another field, and of a plugin that is not registered, both values; of a plugin also the link to the page of its
    author, if the folder has it.
    """
    field, before, after = change
    family, _, _ = field.partition(".")
    name, _, _ = after.partition("(")
    try:
        summary = find_entry(family, name).entry.summary() if family in COMPONENTS else ""
    except HeadToHeadError:
        summary = ""
    if not summary:
        template = VALUES_WITH_PAGE if (folder / f"{name}.md").is_file() else VALUES
        return template.format(field=field, before=before, after=after, name=name)
    address = f"../reference/plugins.md#{family}{name}"
    if (ROOT / "docs" / "reference" / "catalogue" / f"{family}.md").is_file():
        address = f"../reference/catalogue/{family}.md#{name}"
    return f"[{name}]({address}): {summary}"


def costs(result: Result, reports: Path) -> tuple[str, str]:
    """Return by how much the change raises parameters and FLOPs, as texts; empty without a table of runs.

    An average of several settings has the smallest and the largest value. A variant that equals another one is not in
    the table.
    """
    file = reports / result.report / "results.csv"
    if not file.is_file():
        return "", ""
    runs = pd.read_csv(file)
    columns = ["parameters/non_embedding", "flops_per_token"]
    of_variants = runs.groupby("variant")[columns].first()
    variants = []
    against = []
    for variant, other in result.contrast["pairs"]:
        if variant in of_variants.index and other in of_variants.index:
            variants.append(variant)
            against.append(other)
    if not variants:
        return "", ""
    raised = of_variants.loc[variants].to_numpy() / of_variants.loc[against].to_numpy() - 1
    parameters, flops = raised.T
    return _percent(parameters), _percent(flops)


def _percent(fractions: np.ndarray) -> str:
    """Return equal fractions as a percentage, and different ones as the smallest and the largest."""
    low = f"{100 * fractions.min():+.1f}"
    high = f"{100 * fractions.max():+.1f}"
    percentage = f"{low} %" if low == high else f"{low} to {high} %"
    return percentage.replace("-", "−")


COMMAND = re.compile(r"^h2h run .+$", re.MULTILINE)
"""The command that a report prints to train its study again."""


def _repeat(group: Sequence[Result], reports: Path) -> str:
    """Return the commands that repeat the reports; empty if no report has one."""
    commands = []
    for report in dict.fromkeys(result.report for result in group):
        command = _card_command(report) or _run_command(reports / report / "report.md")
        if command:
            commands.append(command)
    return REPEAT.format(commands="\n".join(commands)) if commands else ""


def _card_command(report: str) -> str:
    """Return the command of a study of ``h2h card``, whose file names its plugin; empty for other reports."""
    file = ROOT / "experiments" / f"{report}.yaml"
    if not report.startswith(CARD_STUDY) or not file.is_file():
        return ""
    (plugin,) = yaml.safe_load(file.read_text(encoding="utf-8"))["plugins"]
    return f"h2h card experiments/{plugin}"


def _run_command(page: Path) -> str:
    """Return the command of a report's page, without the option that leaves MLflow out; empty without a page."""
    if not page.is_file():
        return ""
    printed = COMMAND.search(page.read_text(encoding="utf-8"))
    return printed[0].replace(" --no-tracking", "") if printed else ""


def write(folder: Path, reports: Path = REPORTS) -> None:
    """Write cards and their figures into ``docs/results``, and the heat map into its ``README.md``.

    Pages of published reports, which are not committed beside their reports, are copied where they exist.
    """
    for name in PUBLISHED:
        page_of_report = reports / name / "index.html"
        if page_of_report.is_file():
            shutil.copy(page_of_report, folder / published_page(name))
    figures = folder / "figures"
    figures.mkdir(exist_ok=True)
    for old in [*figures.glob(FIGURES), *_generated(folder)]:
        old.unlink()
    results_shown = results(reports)
    for change, group in by_change(results_shown).items():
        (folder / f"{slug(change)}.md").write_text(
            card(change, group, reports, folder), encoding="utf-8"
        )
        for number, metric in enumerate(metrics_of(group)):
            drawn = figure(group, metric)
            (figures / f"{slug(change)}-{number}.svg").write_text(drawn, encoding="utf-8")
    index = folder / "README.md"
    page = index.read_text(encoding="utf-8")
    page = between(page, "heat map", heat_map(results_shown))
    names: dict[str, list[str]] = {}
    for name, reason in withdrawn(reports).items():
        names.setdefault(reason, []).append(name)
    reasons = [f"- {', '.join(group)}: {reason}" for reason, group in names.items()]
    page = between(page, "withdrawn", "\n".join(reasons) or "None.")
    page = between(page, "pages", _pages_of_authors(folder))
    index.write_text(page, encoding="utf-8")


def _generated(folder: Path) -> list[Path]:
    """Return the cards of an earlier call."""
    return [page for page in folder.glob("*.md") if GENERATED in page.read_text(encoding="utf-8")]


def _pages_of_authors(folder: Path) -> str:
    """Return a line per page that is not generated: its title and its answer, which is its first bold text."""
    lines = []
    for page in sorted(set(folder.glob("*.md")) - set(_generated(folder))):
        title, _, rest = page.read_text(encoding="utf-8").removeprefix("# ").partition("\n")
        bold = re.match(r"\s*\*\*(.*?)\*\*", rest, re.DOTALL)
        if bold and page.name not in NOT_CARDS:
            lines.append(f"- [{title}]({page.name}): {' '.join(bold[1].split())}")
    return "\n".join(lines) or "None yet."


def between(page: str, name: str, content: str) -> str:
    """Return a page with new content between the comments that name a place."""
    start = f"<!-- {name} -->\n"
    end = f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}{content}\n{end}{after}"


if __name__ == "__main__":
    write(RESULTS)
