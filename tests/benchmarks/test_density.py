"""The limits on the density of code: what counts, and the exit code."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SPARSE = '''"""Docstrings and comments do not count: [x for x in y] if z else 0."""

# Neither does map(a, b).
total = 0
for number in numbers:
    total += number
'''
DENSE = "text = ', '.join(map(str, [a if b else c for a in d])) * bool(d)\n"


@pytest.mark.parametrize(
    ("source", "conditionals", "comprehensions"),
    [
        (SPARSE, 0, 0),
        (DENSE, 2, 2),
        ("a = b * (c > 1)\n", 1, 0),
        ("a = b * (not c)\n", 1, 0),
        ("a = b * -c\n", 0, 0),
        ("a = sum(b for b in filter(None, c))\n", 0, 2),
    ],
)
def test_conditions_and_comprehensions_are_counted_in_every_form(
    benchmark, source, conditionals, comprehensions
):
    counts = benchmark("density").count(source)
    assert (counts.conditionals, counts.comprehensions) == (conditionals, comprehensions)


def test_statements_and_tokens_are_those_outside_of_docstrings(benchmark):
    counts = benchmark("density").count(SPARSE)
    # `total = 0`, `for number in numbers:` and `total += number`
    assert (counts.statements, counts.tokens) == (3, 3 + 5 + 3)


def test_the_exit_code_is_1_if_a_path_exceeds_a_limit(benchmark, tmp_path: Path, capsys):
    density = benchmark("density")
    for name, source in (("sparse", SPARSE), ("dense", DENSE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(source)
    assert density.main([tmp_path / "sparse"]) == 0
    assert density.main([tmp_path / "sparse" / "module.py"]) == 0
    assert density.main([tmp_path / "dense" / "module.py"]) == 1
    capsys.readouterr()
    assert density.main([tmp_path / "sparse", tmp_path / "dense"]) == 1
    exceeded = "tokens per statement and conditional expressions and comprehensions"
    assert f"dense: too many {exceeded}" in capsys.readouterr().err


def test_the_judge_keeps_the_limits(benchmark):
    folder = Path(__file__).parents[2] / "harness" / "judge"
    assert benchmark("density").count_path(folder).exceeded() == []
