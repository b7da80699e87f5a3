"""The path of a run: which calls are stops, returns and pairs."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FILES = {
    "first.py": """
import second

def start(numbers=3):
    helper()
    for number in range(numbers):
        second.square(number)
    return list(second.numbers()), sorted([2, 1], key=second.square)

def helper():
    pass
""",
    "second.py": """
import third

def square(number):
    return number * number

def numbers():
    yield third.last()
    yield 2
""",
    "third.py": """
def last():
    return 1
""",
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch):
    for name, source in FILES.items():
        (tmp_path / name).write_text(source)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("first")


def test_calls_in_other_files_are_stops_and_repeated_files_are_returns(benchmark, made, tmp_path):
    path = benchmark("path_of_a_run").CallPath((tmp_path,), end="last")
    path.record(made.start)
    # Three calls of `square`, the generator, and `last`, at which the path ends.
    assert path.files == ["second.py"] * 4 + ["third.py"]
    assert path.returns == 3
    assert path.calls == {
        ("first.py:start", "second.py:square"): 3,
        ("first.py:start", "second.py:numbers"): 1,
        ("second.py:numbers", "third.py:last"): 1,
    }


def test_a_library_that_calls_a_function_is_no_stop_but_its_caller_is(benchmark, made, tmp_path):
    path = benchmark("path_of_a_run").CallPath((tmp_path,), end="never")
    with pytest.raises(ValueError, match="does not reach never"):
        path.record(lambda: made.start(0))
    # A generator that continues is no call.
    assert path.calls == {
        ("first.py:start", "second.py:numbers"): 1,
        ("second.py:numbers", "third.py:last"): 1,
        ("first.py:start", "second.py:square"): 2,
    }


def test_a_run_has_a_path_to_its_first_step(benchmark, tmp_path):
    path = benchmark("path_of_a_run").path_of_a_run(tmp_path)
    assert "headtohead/training/loop.py" in path.files
    assert 0 < path.returns < len(path.files)
