"""``h2h judge`` and ``headtohead.judge`` are those of the judge's package."""

from importlib.metadata import entry_points

import headtohead
import headtohead_judge
from headtohead.cli.judge import command


def test_both_scripts_and_both_packages_have_one_command_and_one_function() -> None:
    (script,) = entry_points(group="console_scripts", name="headtohead-judge")
    assert script.load().__globals__["command"] is command
    assert headtohead.judge is headtohead_judge.judge
