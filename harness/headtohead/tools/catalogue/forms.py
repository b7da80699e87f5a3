"""Closed forms found from counts: exact, or none at all.

A count of parameters or operations is a polynomial in the sizes of a model (and in 1/heads, where
heads share its width). Given enough counts, exact arithmetic finds its coefficients, and counts
that were kept back tell whether they are right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Sizes = Mapping[str, int]
Exponents = tuple[int, ...]
Counts = Sequence[int | None]

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SPARE = 8
"""Counts that are kept back, at least."""


@dataclass(frozen=True)
class Form:
    """A sum of products of sizes.

    ``terms`` maps the exponents of ``symbols``, in their order, to a coefficient.
    """

    symbols: tuple[str, ...]
    terms: Mapping[Exponents, Fraction]

    def __call__(self, sizes: Sizes) -> Fraction:
        """Return its value; sizes without a symbol are not asked."""
        total = Fraction(0)
        for exponents, coefficient in self.terms.items():
            product = coefficient
            for symbol, power in zip(self.symbols, exponents, strict=True):
                product *= Fraction(sizes[symbol]) ** power
            total += product
        return total

    def __str__(self) -> str:
        """Return it as a reader writes it, largest powers first: ``2d² + 4d²/h``."""
        if not self.terms:
            return "0"
        ordered = sorted(self.terms, key=lambda one: (-sum(one), [-power for power in one]))
        text = ""
        for exponents in ordered:
            coefficient = self.terms[exponents]
            sign = "−" if coefficient < 0 else "+"
            text += f" {sign} " if text else ("−" if coefficient < 0 else "")
            text += self._term(abs(coefficient), exponents)
        return text

    def _term(self, coefficient: Fraction, exponents: Exponents) -> str:
        powers = list(zip(self.symbols, exponents, strict=True))
        above = [_power(symbol, power) for symbol, power in powers if power > 0]
        below = [_power(symbol, -power) for symbol, power in powers if power < 0]
        if coefficient.numerator != 1 or not above:
            above.insert(0, str(coefficient.numerator))
        if coefficient.denominator != 1:
            below.insert(0, str(coefficient.denominator))
        divisor = f"({_product(below)})" if len(below) > 1 else "".join(below)
        return _product(above) + (f"/{divisor}" if divisor else "")


def find_forms(
    count: Callable[[Sizes], Counts | None], powers: Mapping[str, Sequence[int]], samples: Iterable[Sizes]
) -> tuple[Form | None, ...]:
    """Return, for each of several counts, the form that gives it at all sizes; None if none does.

    Args:
        count: The numbers at some sizes, None for one that has no meaning there; None altogether
            where the sizes do not fit together.
        powers: The exponents that each symbol may have.
        samples: Sizes to count at. ``SPARE`` more than are needed to find a form have to agree with
            it, and where there are not so many, there is no form.
    """
    symbols = tuple(powers)
    columns = list(itertools.product(*powers.values()))
    known: list[tuple[int, list[Fraction], list[Fraction | None]]] = []
    wrong: set[int] = set()
    left = width = 0
    for sizes in samples:
        found = count(sizes)
        if found is None:
            continue
        width = len(found)
        row = [_monomial(symbols, exponents, sizes) for exponents in columns]
        values = [None if value is None else Fraction(value) for value in found]
        row, values = _reduced(row, values, known)
        pivot = next((place for place, value in enumerate(row) if value), None)
        wrong |= {place for place, value in enumerate(values) if value is None}
        if pivot is not None:
            lead = row[pivot]
            scaled = [None if value is None else value / lead for value in values]
            known.append((pivot, [value / lead for value in row], scaled))
            continue
        wrong |= {place for place, value in enumerate(values) if value}
        left += 1
        if left >= SPARE and len(known) == len(columns):
            break
    if left < SPARE or len(known) < len(columns):
        return (None,) * width
    return tuple(None if place in wrong else Form(symbols, _solved(known, columns, place)) for place in range(width))


def _monomial(symbols: Sequence[str], exponents: Exponents, sizes: Sizes) -> Fraction:
    value = Fraction(1)
    for symbol, power in zip(symbols, exponents, strict=True):
        value *= Fraction(sizes[symbol]) ** power
    return value


def _reduced(
    row: list[Fraction],
    values: list[Fraction | None],
    known: Sequence[tuple[int, list[Fraction], list[Fraction | None]]],
) -> tuple[list[Fraction], list[Fraction | None]]:
    """Subtract from an equation what those before it explain."""
    for pivot, other, others in known:
        factor = row[pivot]
        if factor:
            row = [a - factor * b if b else a for a, b in zip(row, other, strict=True)]
            values = [None if a is None or b is None else a - factor * b for a, b in zip(values, others, strict=True)]
    return row, values


def _solved(
    known: Sequence[tuple[int, list[Fraction], list[Fraction | None]]], columns: Sequence[Exponents], place: int
) -> dict[Exponents, Fraction]:
    """Return the coefficients of one of the counts, those that are not 0."""
    solution = [Fraction(0)] * len(columns)
    for pivot, row, values in reversed(known):
        value = values[place]
        assert value is not None
        solution[pivot] = value - sum((a * b for a, b in zip(row, solution, strict=True) if a and b), Fraction(0))
    return {one: value for one, value in zip(columns, solution, strict=True) if value}


def _power(symbol: str, power: int) -> str:
    return symbol + (str(power).translate(SUPERSCRIPTS) if power != 1 else "")


def _product(factors: Sequence[str]) -> str:
    """Join factors: numbers and single letters stand beside each other, words behind a dot."""
    text = factors[0]
    for before, factor in itertools.pairwise(factors):
        text += ("·" if _is_word(before) or _is_word(factor) else "") + factor
    return text


def _is_word(factor: str) -> bool:
    return sum(letter.isalpha() for letter in factor) > 1
