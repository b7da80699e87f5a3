"""The text of a report and the data beside it, from which its numbers are recomputed."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recompute import ALPHA, Results, equal_slug, table_of, variance_ratio, weights_of

from report_text.numbers import Expected

NAME = "◆"

NOT_COUNTED = ("identical", "cannot tell")
"""Directions of contrasts with equal scores in every seed, which are not counted in their family."""

POINTS = {
    "vocabulary upper bound": "vocabulary_bound",
    "nearest neighbour": "nearest_neighbour",
    "nearest-neighbour retrieval": "nearest_neighbour",
    "copied source": "source_copy",
    "most frequent target": "majority",
    "the most frequent target": "majority",
}
"""Field of ``answer.json`` by name of a reference point."""


class Page:
    """A report: the text of ``report.md``, and the data beside it."""

    def __init__(self, folder: Path) -> None:
        self.text = unescaped((folder / "report.md").read_text(encoding="utf-8"))
        self.lines = self.text.splitlines()
        self.answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        self.runs = pd.read_csv(folder / "results.csv", dtype={"variant": str, "title": str})
        self.titles = dict(zip(self.runs["variant"], self.runs["title"].astype(str), strict=True))
        self.equal: dict[str, str] = {}
        self.all_titles = dict(self.titles)
        for remark in self.answer["remarks"]:
            for trained, title in self.titles.items():
                left, found, _ = remark["text"].partition(
                    f" and {title} are the same by construction"
                )
                if found:
                    self.equal[equal_slug(remark)] = trained
                    self.all_titles[equal_slug(remark)] = self._within_a_sentence(left)
        self.baseline = str(self.runs["variant"].iloc[0])
        verdicts = self.runs[self.runs["verdict"] == "baseline"]
        if len(verdicts):
            self.baseline = str(verdicts["variant"].iloc[0])
        self.metric: str = self.answer["metric"]
        self.results = Results(self.runs)
        self.by_column: dict[tuple[str, bool], dict[str, dict[int, float]]] = {}
        columns = [*self.runs.columns]
        between = columns[columns.index("torn_lines") + 1 : columns.index("flops_per_token")]
        self.axes = [axis for axis in between if self.runs[axis].nunique() > 1]
        self.names = self._names()
        fences = re.findall(r"^~~~$\n(.*?)^~~~$", self.text, re.DOTALL | re.MULTILINE)
        self.file = " ".join(" ".join(fences).split())

    def _within_a_sentence(self, title: str) -> str:
        """Return a title that began a remark as tables have it, without the capital of the beginning."""
        if f"| {title} (" in self.text:
            return title
        return title[:1].lower() + title[1:]

    def _names(self) -> list[str]:
        """Return the names that contain digits, longest first: variants, contrasts, axes and values."""
        names = {
            *self.all_titles.values(),
            *self.all_titles,
            self.answer["question"],
            self.answer["experiment"],
        }
        for contrast in self.answer["contrasts"]:
            names.add(contrast["name"])
            names.add(
                contrast["name"][:1].upper() + contrast["name"][1:]
            )  # at the beginning of a remark
        for column in self.runs.columns:
            if self.runs[column].dtype == object:
                names |= {
                    str(value)
                    for value in self.runs[column].dropna().unique()
                    if len(str(value)) < 60
                }
        return sorted(
            (name for name in names if re.search(r"[^\W\d_]", name) and re.search(r"\d", name)),
            key=len,
        )[::-1]

    def rows_of(self, section: str) -> list[list[str]]:
        """Return the cells of the table of a section, without its heading; empty without such a section."""
        rows = []
        title = ""
        for line in self.lines:
            if line.startswith("#"):
                title = line.lstrip("# ")
            elif title == section and line.startswith("|"):
                rows.append([cell.strip(" *") for cell in line.split("|")[1:-1]])
        return rows[2:]

    def masked(self, line: str) -> str:
        """Return a line in which names, hashes, dates and quoted examples have no digits."""
        for name in self.names:
            line = line.replace(name, NAME * len(name))
        for pattern in (
            r"\b[0-9a-f]{12,64}\b",
            r"\b\d{4}-\d\d-\d\d(?:T[\d:.]+Z)?\b",
            r"“[^”]*”",
            r"\]\([^)]*\)",
            r"`[^`]*`",
        ):
            line = re.sub(pattern, lambda found: NAME * len(found[0]), line)
        return line

    def slug_of(self, cell: str) -> str | None:
        """Return the variant that a cell begins with; its title can be followed by notes in brackets."""
        fitting = [
            slug
            for slug, title in self.all_titles.items()
            if cell == title or cell.startswith(title + " (")
        ]
        return max(fitting, key=lambda slug: len(self.all_titles[slug]), default=None)

    def scores(
        self,
        slug: str,
        metric: str,
        lengths: Sequence[int] | None = None,
        *,
        all_runs: bool = False,
    ) -> dict[int, float]:
        """Return the scores of a variant by seed, without collapsed runs unless ``all_runs``."""
        column = metric
        if lengths:
            column = f"{metric}/{lengths[0]}-{lengths[1]}"
        key = column, all_runs
        if key not in self.by_column:
            self.by_column[key] = self.results.scores(column, all_runs=all_runs)
        return self.by_column[key].get(self.equal.get(slug, slug), {})

    def mean_of(self, slug: str, column: str, *, all_runs: bool = False) -> float:
        """Return the mean of a column over the seeds of a variant; collapsed runs as for `scores`."""
        scores = self.scores(slug, column, all_runs=all_runs)
        return float(np.mean([*scores.values()] or [math.nan]))

    def weights(self, contrast: Mapping[str, Any]) -> dict[tuple[str, Any], float]:
        """Return the weight of each score of a contrast, with the trained variants."""
        pairs = [[self.equal.get(slug, slug) for slug in pair] for pair in contrast["pairs"]]
        return weights_of({**contrast, "pairs": pairs})

    def differences(self, contrast: Mapping[str, Any]) -> np.ndarray | None:
        """Return the differences of a contrast by seed, or None if results.csv lacks a score."""
        weights = self.weights(contrast)
        scores = [self.scores(slug, metric, lengths) for slug, (metric, lengths) in weights]
        if not all(scores):
            return None
        seeds = sorted(set.intersection(*map(set, scores)))
        if seeds != sorted(contrast["seeds"]):
            return np.array([math.nan])
        total = np.zeros(len(seeds))
        for own, weight in zip(scores, weights.values(), strict=True):
            total += weight * np.array([own[seed] for seed in seeds])
        return total

    def setting_means(self, contrast: Mapping[str, Any]) -> Expected:
        """Return the mean difference of each setting of a contrast; NaN if results.csv lacks a score."""
        means = []
        for setting in settings_of(contrast):
            values = self.differences(setting)
            means.append(math.nan if values is None else float(values.mean()))
        return means

    def family_of(self, contrast: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the contrasts of different scores that are judged with a contrast, in its first family."""
        weights = self.weights(contrast)
        families = ("declared", "factors", "variants", "interactions", "added", "taken")
        for name in families:
            members = []
            seen: list[Mapping[Any, float]] = []
            for own in self.answer["contrasts"]:
                if own["family"] == name and own["difference"] is not None:
                    keys = [self.weights(own), {side: -w for side, w in self.weights(own).items()}]
                    if not any(key in seen for key in keys):
                        members.append(own)
                        seen.append(keys[0])
            opposite = {side: -weight for side, weight in weights.items()}
            if weights in seen or opposite in seen:
                return members
        raise KeyError(contrast["name"])

    def level_of(self, contrast: Mapping[str, Any]) -> float:
        """Return 1 minus the confidence of the interval of a contrast."""
        tested = [own for own in self.family_of(contrast) if own["direction"] not in NOT_COUNTED]
        return float(1 - (1 - ALPHA) ** (1 / len(tested)))

    def ratio_of(self, family: str) -> float:
        """Return the variance ratio of a family in the primary metric, NaN if results.csv lacks a score."""
        members = [
            own
            for own in self.answer["contrasts"]
            if own["family"] == family and own["difference"] is not None
        ]
        weights = [self.weights(own) for own in members]
        slugs = list(dict.fromkeys(self.runs["variant"]))
        scores = {slug: self.scores(slug, self.metric) for slug in slugs}
        table = table_of({slug: own for slug, own in scores.items() if own})
        by_slug = [{slug: weight for (slug, _), weight in own.items()} for own in weights]
        return variance_ratio(table, by_slug)


def settings_of(contrast: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a contrast for each setting that a contrast averages; a setting of an interaction has two pairs."""
    size = 2 if contrast["family"] == "interactions" else 1
    pairs = contrast["pairs"]
    return [
        {**contrast, "pairs": pairs[start : start + size]} for start in range(0, len(pairs), size)
    ]


def unescaped(text: str) -> str:
    """Return Markdown without backslashes and HTML entities."""
    return html.unescape(re.sub(r"\\([_*<>\[\]|#~`-])", r"\1", text))


def seed_table(page: Page) -> np.ndarray:
    """Return the scores ``[variant, seed]`` of the variants with the data and size of the baseline."""
    columns = [name for name in ("data", "size") if name in page.runs]
    first = page.runs[page.runs["variant"] == page.baseline].iloc[0]
    same = page.runs[(page.runs[columns] == first[columns]).all(axis=1)]
    slugs = [slug for slug in dict.fromkeys(same["variant"]) if slug in page.answer["scores"]]
    return (
        pd.DataFrame({slug: page.scores(slug, page.metric) for slug in slugs}).dropna().to_numpy().T
    )
