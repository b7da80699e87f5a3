"""The pages of ``docs/results``: a heat map and a table of committed differences of single changes, and a card each.

A change is a field with its value before and after, such as positional: sinusoidal → rotary. Everything is read from
``answer.json`` and ``results.csv`` of the committed reports that are not withdrawn. A setting in which all scores are
the lowest or highest possible ones is shown as "cannot tell", and neither counted nor averaged.

``python docs/generator/results.py`` writes the pages; ``make docs`` writes them with the other generated pages.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from cards import (
    GENERATED,
    PUBLISHED,
    capital,
    card,
    figure,
    published_page,
)
from headtohead.storage.metrics import readable
from measured import (
    REPORTS,
    RESULTS,
    Result,
    by_change,
    labels,
    limits,
    measured_results,
    metrics_of,
    slug,
    withdrawn,
)

FIGURES = "*-[0-9].svg"
"""Names of the figures of cards."""

NOT_CARDS = ("README.md", "records.md", "noise.md")
"""Pages of the folder that are no card."""

CELL = '{label}{difference}{interval}<br><span class="{kind}">{verdict}</span>'
ONE_SETTING = "No change has results in several settings."


def heat_map(results_shown: Sequence[Result]) -> str:
    """Return a row per change with results in several settings, and a column per setting: data, size and passes.

    The class of a verdict is its colour on the site; elsewhere the cell has the verdict in words alone. A metric that
    all results of a change have stands below its name.
    """
    groups = {}
    for change, group in by_change(results_shown).items():
        if len({result.setting.place for result in group}) > 1:
            groups[change] = group
    columns = dict.fromkeys(result.setting.place for group in groups.values() for result in group)
    if not columns:
        return ONE_SETTING
    heads = ["<br>".join(place) for place in columns]
    lines = [f"| change | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
    for change, group in groups.items():
        metrics = {readable(result.metric) for result in group}
        has_one_metric = len(metrics) == 1
        row = [f"[{group[0].name}]({slug(change)}.md)"]
        if has_one_metric:
            row[0] += f"<br>{metrics.pop()}"
        for place in columns:
            in_cell = [result for result in group if result.setting.place == place]
            row.append(_cell(in_cell, has_metric=not has_one_metric) if in_cell else "")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _cell(in_cell: Sequence[Result], *, has_metric: bool) -> str:
    """Return the differences of a change in a setting; where there are several, each after what distinguishes it."""
    texts = []
    for result, label in zip(in_cell, labels(in_cell), strict=True):
        text_of_result = CELL.format(
            label=f"{label}:<br>" if label else "",
            difference=result.with_metric if has_metric else result.difference,
            interval=f"<br>({result.interval})" if result.interval else "",
            kind=result.kind,
            verdict=result.verdict,
        )
        texts.append(text_of_result)
    return "<br>".join(texts)


TABLE_HEAD = """| change | setting | without it | difference | 95 % interval | verdict |
|---|---|---:|---:|---|---|"""
TABLE_ROW = (
    "| {change} | {setting} | {without} | {difference} | {interval} | "
    '<span class="{kind}">{verdict}</span> |'
)


def table(results_shown: Sequence[Result]) -> str:
    """Return the table of all results, change by change.

    The class of a verdict is its colour on the site; elsewhere the table has the verdict in words alone. Where the
    scores cannot tell, it has what all of them are in place of the difference.
    """
    if not results_shown:
        return "No report has a result."
    lines = [TABLE_HEAD]
    for change, group in by_change(results_shown).items():
        link = f"[{group[0].name}]({slug(change)}.md)"
        for result, setting in zip(group, labels(group, ["data", "size", "steps"]), strict=True):
            line = TABLE_ROW.format(
                change=link,
                setting=setting,
                without=result.without,
                difference=result.with_metric,
                interval=result.interval,
                kind=result.kind,
                verdict=result.verdict,
            )
            lines.append(line)
    return "\n".join(lines)


def write(folder: Path, reports: Path = REPORTS) -> None:
    """Write cards and their figures into ``docs/results``, and the heat map and the table into its ``README.md``.

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
    results_shown = measured_results(reports)
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
    page = between(page, "table", table(results_shown))
    lines = [f"- {capital(text)}." for text in limits(results_shown)]
    page = between(page, "limits", "\n".join(lines))
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
    """Return a page with new content between the comments that name a place.

    Raises:
        ValueError: If the page does not have each of the two comments once.
    """
    start = f"<!-- {name} -->\n"
    end = f"<!-- end of {name} -->"
    if page.count(start) != 1 or page.count(end) != 1:
        raise ValueError(f"expected one '{start.strip()}' and one '{end}' in the page")
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}{content}\n{end}{after}"


if __name__ == "__main__":
    write(RESULTS)
