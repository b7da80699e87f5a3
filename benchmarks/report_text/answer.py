"""Sentences and rows of contrasts: the texts of ``answer.json``, with recomputed numbers and words.

A sentence of ``report.md`` belongs to the contrast that has it in ``answer.json``, apart from its numbers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from recompute import HIGHER

from report_text.files import Finding
from report_text.numbers import METRICS, Expected, N, agrees
from report_text.page import Page, settings_of, unescaped
from report_text.possible import has_possible, possible_sizes

Contrast = Mapping[str, Any]
SIGNED = rf"{N}(?: \({N} to {N}\))?"
"""A difference, and its interval if there is one."""

NAMES_OF_METRICS = "|".join(map(re.escape, sorted(METRICS, key=len, reverse=True)))
IN_METRIC = re.compile(rf" (?:in|on) (?:{NAMES_OF_METRICS})")
"""The metric, which is omitted where all contrasts have the same."""


@dataclass(frozen=True)
class Template:
    """A text with the numbers that it must have.

    Attributes:
        text: The text as it is in ``answer.json``.
        pattern: Matches the text with any numbers, in a group each.
        expected: The numbers, in the order of the groups.
    """

    text: str
    pattern: re.Pattern[str]
    expected: Expected


def size_and_ends(page: Page, contrast: Contrast) -> Expected:
    """Return the absolute difference and the ends of its interval, which older reports print."""
    difference, low, high = signed_and_ends(page, contrast)
    if difference < 0:
        low, high = -high, -low
    return [abs(difference), low, high]


def signed_and_ends(page: Page, contrast: Contrast) -> Expected:
    """Return the difference, recomputed from results.csv if it has all scores, and the ends of its interval."""
    values = page.differences(contrast)
    difference = contrast["difference"] if values is None else float(values.mean())
    return [difference, *ends(page, contrast)]


def ends(page: Page, contrast: Contrast) -> Expected:
    """Return the ends of the interval of a contrast."""
    interval = contrast["interval"] or {"low": np.nan, "high": np.nan}
    return [interval["low"], interval["high"]]


def margin(page: Page, contrast: Contrast) -> Expected:
    """Return the margin of a contrast, its difference and the ends of its interval, which can follow."""
    return [contrast["margin"] or np.nan, *signed_and_ends(page, contrast)]


def largest(page: Page, contrast: Contrast) -> Expected:
    """Return the end of the interval that is farther from 0, and both ends, as older reports print them."""
    low, high = ends(page, contrast)
    return [max(abs(low), abs(high)), low, high]


def possible(page: Page, contrast: Contrast) -> Expected:
    """Return the sizes of the ends of the interval that are printed with their sides."""
    return possible_sizes(contrast)


def range_of_settings(page: Page, contrast: Contrast) -> Expected:
    """Return the smallest and the largest difference of a setting."""
    means = page.setting_means(contrast)
    return [min(means), max(means)]


def parameters(page: Page, contrast: Contrast) -> Expected:
    """Return how many more non-embedding parameters the first sides have, in percent."""
    sums = []
    for side in (0, 1):
        counts = [
            page.mean_of(pair[side], "parameters/non_embedding") for pair in contrast["pairs"]
        ]
        sums.append(sum(counts))
    return [100 * (sums[0] / sums[1] - 1)]


def steps(page: Page, contrast: Contrast) -> Expected:
    """Return the largest number of trained steps of a variant of a contrast."""
    slugs = {page.equal.get(slug, slug) for pair in contrast["pairs"] for slug in pair}
    return [float(page.runs.loc[page.runs["variant"].isin(slugs), "step"].max())]


CLAIMS: list[tuple[str, Callable[[Page, Contrast], Expected]]] = [
    (rf"(?:improve|worsen|rise|fall)s?[:,] {SIGNED}", signed_and_ends),
    (
        rf"(?:better|worse|more|less) than the sum(?: of their effects)?(?: in [\w -]+)?, {SIGNED}",
        signed_and_ends,
    ),
    (rf" is (?:better|worse) with .*? than with .*?: {SIGNED}", signed_and_ends),
    (rf"the difference(?: in [\w -]+)? is {SIGNED}", signed_and_ends),
    (rf"(?:improve|worsen|rise|fall)s? by {SIGNED}", size_and_ends),
    (rf" is {SIGNED} (?=(?:better|worse) with)", size_and_ends),
    (rf"the margin of {N}", margin),
    (rf"(?:within|by less than) {N}(?: on average)?(?: in [\w -]+)?[:,] {SIGNED}", margin),
    (rf"shown(?: on average)?, {SIGNED}", signed_and_ends),
    (rf"could be up to {N} (?:better|worse|higher|lower)(?: or {N})?", possible),
    (rf"could be up to {N} \({N} to {N}\)", largest),
    (rf"{N} to {N} depending on", range_of_settings),
    (rf"single settings: {N} to {N}", range_of_settings),
    (rf"{N} % non-embedding parameters", parameters),
    (rf"after {N} steps", steps),
]
"""Parts of texts on a contrast, and their numbers."""

EFFECT = re.compile(rf"(?:(?<=\()|(?<=; )|(?<=, )|(?<= and )){N} (?=with(?:out)? )")
"""The effect for a value of another axis."""


@functools.cache
def templates(page: Page) -> list[Template]:
    """Return the templates of the sentences on contrasts and of the rows of the first table."""
    found = []
    for contrast in page.answer["contrasts"]:
        sentence = " ".join(unescaped(contrast["sentence"]).split())
        found.append(template(page, contrast, sentence))
    for row in page.answer["differences"]:
        name, *notes = unescaped(row["contrast"]).split("\n")
        contrasts = contrasts_of_row(page, name)
        if contrasts:
            text = " ".join([name, *(f"({note})" for note in notes)])
            found.append(template(page, contrasts[0], text))
    return found


def contrasts_of_row(page: Page, name: str) -> list[Contrast]:
    """Return the main contrasts with a name, which a metric in parentheses can follow."""
    fitting = []
    for contrast in page.answer["contrasts"]:
        own = unescaped(contrast["name"])
        is_own = name == own or re.fullmatch(rf"{re.escape(own)} \({NAMES_OF_METRICS}\)", name)
        if is_own and contrast["main"]:
            fitting.append(contrast)
    return fitting


def template(page: Page, contrast: Contrast, text: str) -> Template:
    """Return the template of a text on a contrast."""
    numbers: dict[tuple[int, int], float] = {}
    for claim, values in CLAIMS:
        for found in re.finditer(claim, text):
            for group, value in enumerate(values(page, contrast), start=1):
                if group <= found.re.groups and found[group] is not None:
                    numbers[found.span(group)] = value
    for start, end, value in effects(page, contrast, text):
        numbers[start, end] = value
    pattern = ""
    expected = []
    position = 0
    for (start, end), value in sorted(numbers.items()):
        pattern += literal(text[position:start]) + N
        expected.append(value)
        position = end
    return Template(text, re.compile(pattern + literal(text[position:])), expected)


def literal(text: str) -> str:
    """Return the pattern of a text in which the metric is optional, and stands for *it* where it was omitted before."""
    parts = []
    position = 0
    for found in IN_METRIC.finditer(text):
        parts.append(re.escape(text[position : found.start()]) + f"(?:{re.escape(found[0])})?")
        position = found.end()
    pattern = "".join(parts) + re.escape(text[position:])
    return pattern.replace(r";\ it\ could\ be", rf"; (?:it|{NAMES_OF_METRICS}) could be")


def effects(page: Page, contrast: Contrast, text: str) -> list[tuple[int, int, float]]:
    """Return start, end and value of the effects of a contrast for each value of another axis.

    The effects are those of the axis whose values they fit, and NaN if they fit those of no axis.
    """
    printed = list(EFFECT.finditer(text))
    if not printed:
        return []
    expected = [np.nan] * len(printed)
    candidates = []
    for by_value in effects_by_axis(page, contrast):
        candidates += [by_value, [by_value[0], by_value[-1]]]
    for candidate in candidates:
        texts = [found[1] for found in printed]
        if len(candidate) == len(texts) and all(map(agrees, texts, candidate)):
            expected = candidate
    return [(*found.span(1), value) for found, value in zip(printed, expected, strict=True)]


def effects_by_axis(page: Page, contrast: Contrast) -> Iterator[Expected]:
    """Yield the mean differences of a contrast for the values of each other axis, smallest first."""
    means = page.setting_means(contrast)
    firsts = [setting["pairs"][0] for setting in settings_of(contrast)]
    for axis in page.axes:
        values = dict(zip(page.runs["variant"], page.runs[axis], strict=True))
        by_value: dict[Any, list[float]] = {}
        is_other = True
        for (left, right), mean in zip(firsts, means, strict=True):
            left_value = values[page.equal.get(left, left)]
            is_other = is_other and left_value == values[page.equal.get(right, right)]
            by_value.setdefault(left_value, []).append(mean)
        if is_other and len(by_value) > 1:
            yield sorted(float(np.mean(own)) for own in by_value.values())


WORDS = {
    "better": r" improves?(?:[:,]| by) ",
    "worse": r" worsens?(?:[:,]| by) ",
    "larger": r" rises?(?:[:,] \+| by )|the difference .*is \+",
    "smaller": r" falls?(?:[:,] −| by )|the difference .*is −",
    "equivalent": r" changes? by less than | equivalent to within | is 0 to within ",
    "no difference shown": r": no difference.* shown",
    "identical": r" the same in every seed",
    "same by construction": r": the same by construction",
    "cannot tell": r": cannot tell",
    "no verdict": r": no verdict",
}
"""The words of a sentence by the direction of the contrast."""

WORDS_ON_INTERACTIONS = {
    "equivalent": r"add up to within| is the same with .* to within ",
    "no difference shown": r": no interaction.* shown|: no difference between .* shown",
    "identical": r"add up exactly| in every seed",
    "same by construction": r" by construction",
    "cannot tell": r": cannot tell",
    "no verdict": r": no verdict",
}
"""The words of a sentence on an interaction that is not detected, by its direction."""


def expected_words(page: Page, contrast: Contrast) -> str:
    """Return the pattern of the words on a contrast, by its direction; empty if there is no rule."""
    direction = contrast["direction"]
    if contrast["family"] != "interactions":
        return WORDS.get(direction, "")
    if direction not in ("larger", "smaller", "better", "worse"):
        return WORDS_ON_INTERACTIONS.get(direction, "")
    is_raised = contrast["interval"]["low"] > 0
    is_better = is_raised == contrast["metric"].endswith(HIGHER)
    word = "better" if is_better else "worse"
    is_gain = (sum_of_effects(page, contrast) > 0) == contrast["metric"].endswith(HIGHER)
    gain = "gain" if is_gain else "lose"
    more = "more" if is_better == is_gain else "less"
    older = rf"together they {gain} {more} than the sum"  # of reports before their next training
    return rf"together they are {word} than the sum|{older}| is (?:\S+ (?:\(.*\) )?)?{word} with "


def sum_of_effects(page: Page, contrast: Contrast) -> float:
    """Return the sum of the effects of both changes of an interaction alone, over all settings.

    The first pair of a setting is both changes minus the second, the other pair is neither minus the first.
    """
    total = 0.0
    for setting in settings_of(contrast):
        (_, second), (neither, first) = setting["pairs"]
        means = [page.mean_of(slug, contrast["metric"]) for slug in (first, second, neither)]
        total += means[0] + means[1] - 2 * means[2]
    return total


LESS = re.compile(r"; the difference is smaller than the margin|, less than the margin")
"""The words on a margin that is larger than a detected difference."""
PERHAPS_LESS = re.compile(
    r"; it is open whether by more than the margin|; the difference may be smaller than the margin"
)
"""The words of older reports on a margin that may be larger than a detected difference."""


def has_margin_words(contrast: Contrast, sentence: str) -> bool:
    """Return whether a sentence has the words on the margin that its contrast needs, and no others."""
    size = contrast["size"] or ""
    is_detected = contrast["direction"] in ("better", "worse", "larger", "smaller")
    is_less = is_detected and "less" in size
    is_open = is_detected and bool(contrast["margin"]) and not size
    has_less = LESS.search(sentence) is not None
    has_perhaps = PERHAPS_LESS.search(sentence) is not None
    return has_less == is_less and (is_open or not has_perhaps)


def sentence_problems(page: Page) -> list[Finding]:
    """Return what is wrong with the words and numbers of the sentences in ``answer.json``."""
    findings = []
    for contrast in page.answer["contrasts"]:
        sentence = " ".join(unescaped(contrast["sentence"]).split())
        if not re.search(expected_words(page, contrast), sentence):
            problem = f"{contrast['direction']}, but the sentence is '{sentence}'"
            findings.append(Finding(0, problem))
        if not has_margin_words(contrast, sentence):
            findings.append(Finding(0, f"size {contrast['size']}, but '{sentence}'"))
        if contrast["direction"] == "no difference shown" and not has_possible(contrast, sentence):
            problem = f"interval {contrast['interval']}, but the sentence is '{sentence}'"
            findings.append(Finding(0, problem))
    for own in templates(page):
        found = own.pattern.search(own.text)
        findings += [] if found is None else number_problems(0, found, own.expected)
    return findings


def number_problems(line: int, found: re.Match[str], expected: Sequence[float]) -> list[Finding]:
    """Return the numbers of a match that are not the expected ones."""
    problems = []
    for printed, value in zip(found.groups(), expected, strict=True):
        if not agrees(printed, value):
            problem = f"{printed}, expected {value:.6g}, in '{found[0]}'"
            problems.append(Finding(line, problem))
    return problems


REST = {
    "Smaller gains": "better",
    "Smaller losses": "worse",
    "Smaller rises": "larger",
    "Smaller falls": "smaller",
    "Any difference is smaller than": "equivalent",
    "No difference shown": "no difference shown",
    "The same in every seed": "identical",
    "The same by construction": "same by construction",
    "the best possible ones": "cannot tell",
    "No verdict": "no verdict",
}
"""Direction of the contrasts that share a sentence, by the words before their names; a number can follow."""


def contrasts_of_rest(page: Page, lead: str) -> list[Contrast]:
    """Return the main contrasts with the direction of a shared sentence that have no sentence of their own."""
    own = {
        contrast["name"]
        for contrast, of_contrast in zip(page.answer["contrasts"], templates(page), strict=False)
        if of_contrast.pattern.search(page.answer["answer"])
    }
    members = []
    for contrast in page.answer["contrasts"]:
        is_member = contrast["main"] and contrast["direction"] == REST[lead]
        if is_member and contrast["name"] not in own:
            members.append(contrast)
    return members


LEADS = re.compile(
    rf"({'|'.join(map(re.escape, REST))})"
    rf"(?: {N}| \(each at most {N} in either direction\)| \(no interval exceeds ±{N}\))?(?=: )"
)


def further_contrasts(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return how many contrasts of a shared sentence it does not name."""
    leads = list(LEADS.finditer(before))
    if not leads:
        return [np.nan]
    named = before[leads[-1].end() :].count("; ") + 1
    return [float(len(contrasts_of_rest(page, leads[-1][1])) - named)]


def largest_of_rest(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return the largest difference in the intervals of contrasts without a shown difference."""
    members = contrasts_of_rest(page, "No difference shown")
    return [max((own["largest_possible"] for own in members), default=np.nan)]


def margin_of_rest(page: Page, before: str, found: re.Match[str]) -> Expected:
    """Return the margin of the equivalent contrasts without a sentence of their own."""
    margins = {own["margin"] for own in contrasts_of_rest(page, "Any difference is smaller than")}
    return [next((value for value in margins if agrees(found[1], value)), np.nan)]


REST_RULES = [
    (rf"; {N} more(?=[.;])", further_contrasts),
    (rf"each at most {N} in either direction", largest_of_rest),
    (rf"no interval exceeds ±{N}", largest_of_rest),
    (rf"Any difference is smaller than the margin of {N}: ", margin_of_rest),
]
"""Patterns in sentences on several contrasts, with their numbers by page, text before and match."""
