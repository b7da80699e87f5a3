"""Simulated studies that are judged at several looks have few false verdicts, and many without the correction."""

import math
from unittest.mock import patch

import numpy as np
import pytest

from headtohead_judge import paired_tests
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import paired_differences
from headtohead_judge.verdicts import BETTER, WORSE, judge


class Uncorrected(Looks):
    adjusted = staticmethod(lambda p, sides=2: p)  # type: ignore[assignment]
    level = staticmethod(lambda alpha, sides=2: alpha)  # type: ignore[assignment]


def false_verdicts(looks: Looks, studies: int = 600) -> float:
    """Return the rate of studies of two equal variants in which any look finds a difference."""
    generator = np.random.default_rng(0)
    found = 0
    with patch.object(
        paired_tests, "sign_flip_p", lambda _: math.nan
    ):  # no verdict rests on it, and it takes long
        for differences in generator.normal(size=(studies, looks.seeds[-1])):
            verdicts = (
                judge([paired_differences(differences[:seeds])], looks=looks)
                for seeds in looks.seeds
            )
            found += any(judgement.verdict in (BETTER, WORSE) for (judgement,) in verdicts)
    return found / studies


@pytest.mark.slow
def test_looks_without_the_correction_find_false_differences() -> None:
    assert false_verdicts(Looks.planned(4, 16)) < 0.075
    assert false_verdicts(Uncorrected((4, 8, 12, 16))) > 0.09
