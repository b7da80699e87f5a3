"""On a terminal, every command breaks its lines between words, whatever the length of names and questions."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from headtohead.cli import main
from headtohead.storage.leases import Lease
from made import separate_registry
from made.fake_study import experiment_text
from made.terminal import in_terminal, plain, too_wide

QUESTION = (
    "Do rotary and learned positions with a normalised score beat sinusoidal ones in a small model?"
)
LONG = "rotary(fraction=0.25)-with-independent-heads-and-a-gated-feed-forward-network"
DESIGN = {
    "question": QUESTION,
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16},
        "train": {"steps": 4},
    },
    "baseline": {"positional": "sinusoidal", "attention": "split-heads"},
    "design": [
        {
            "product": {
                "positional": ["sinusoidal", "none", {"name": "rotary", "fraction": 0.5}],
                "attention": ["split-heads", "independent-heads"],
                "model.d_ff": [16, 24],
            }
        }
    ],
    "seeds": 3,
    "margin": 0.03,
}

Shown = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an experiment file, scores, and a study with long names and runs in every state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(cache))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(DESIGN))
    noise = random.Random(1)
    scores = ["variant,seed,accuracy"]
    for variant, mean in (("base", 0.7), (LONG, 0.8), ("alibi", 0.701), ("none", 0.5)):
        for seed in range(1, 7):
            scores.append(f'"{variant}",{seed},{mean + noise.gauss(0, 0.01):.5f}')
    (tmp_path / "scores.csv").write_text("\n".join(scores))
    study = tmp_path / "runs" / "study"
    runs = []
    for variant, state in ((LONG, "DONE"), ("b", "FAILED"), ("c", "DIVERGED"), ("d", "RUNNING")):
        for seed in range(1, 13):
            directory = f"{variant[:30]}-s{seed}-00000000"
            (study / directory).mkdir(parents=True)
            status = {"state": state, "step": 300, "steps": 9000}
            if state != "DONE":
                status["reason"] = "ValueError: a message of many words of a plugin that failed"
            (study / directory / "status.json").write_text(json.dumps(status))
            runs.append((variant, seed, directory))
    text = experiment_text("study", dict.fromkeys((LONG, "b", "c", "d")), runs)
    (study / "experiment.json").write_text(text.replace("Which?", QUESTION))
    return tmp_path


@pytest.fixture
def shown(folder: Path) -> Shown:
    """Return what a command prints to a terminal of a width."""

    def show(columns: int, *arguments: str, **environment: str) -> str:
        with separate_registry(), Lease(folder / "runs" / "study" / "d-s1-00000000"):
            return in_terminal(
                columns, lambda: main(list(arguments), prog_name="h2h"), **environment
            )

    return show


COMMANDS = {
    "plan": ("plan", "experiment.yaml"),
    "list": ("list",),
    "status": ("status", "study"),
    "doctor": ("doctor",),
    "judge": ("judge", "scores.csv", "--baseline", "base", "--margin", "0.01"),
    "plugins": ("plugins",),
    "an error": ("judge", "scores.csv", "--baseline", "of-a-name-that-no-variant-of-the-file-has"),
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_fits_the_terminal(command: str, columns: int, shown: Shown) -> None:
    text = shown(columns, *COMMANDS[command])
    assert len(text) > 80
    assert too_wide(text, columns) == []


@pytest.mark.parametrize("command", ["plan", "list", "status", "judge"])
def test_a_narrow_terminal_has_every_character_of_a_wide_one(command: str, shown: Shown) -> None:
    narrow, wide = ("".join(plain(shown(n, *COMMANDS[command])).split()) for n in (80, 400))
    narrow += "variant"  # the heading of the first column, which a list of variants does not have
    assert Counter(wide) - Counter(narrow) == Counter()


def test_colours_of_a_command_follow_no_color(shown: Shown) -> None:
    coloured = shown(80, *COMMANDS["status"])
    assert "\x1b[31mFAILED\x1b[0m" in coloured
    without = shown(80, *COMMANDS["status"], NO_COLOR="1")
    assert "\x1b" not in without
    assert plain(coloured) == without


def test_status_groups_the_seeds_of_a_variant_by_state(shown: Shown) -> None:
    lines = [" ".join(line.split()) for line in plain(shown(400, *COMMANDS["status"])).splitlines()]
    assert f"{LONG} 1 to 12" in lines
    assert "d 1 (step 300 of 9,000) 2 to 12" in lines


def test_a_plan_names_once_what_all_variants_share(shown: Shown) -> None:
    lines = shown(400, *COMMANDS["plan"]).splitlines()
    assert "in every variant: runs 0/3 done; path fused" in lines
    (heading,) = [line for line in lines if line.startswith("variant ")]
    assert "runs" not in heading
    assert "attention width" in heading


def test_judge_ends_with_its_exit_code(shown: Shown) -> None:
    text = shown(80, *COMMANDS["judge"])
    assert text.endswith("\nexit code 3: not every variant is better\n")
    both = ("--candidate", LONG, "--candidate", "alibi")
    assert shown(80, *COMMANDS["judge"], *both).endswith(
        "\nexit code 3: not every variant is better\n"
    )
    accepted = shown(80, *COMMANDS["judge"], *both[:2])
    assert accepted.endswith("\nexit code 0: every variant is better\n")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_the_question_is_printed_before_torch_is_loaded(
    command: str, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise SystemExit

    monkeypatch.setattr(f"headtohead.cli.{command}.load_plugins", stop)
    assert shown(400, command, "experiment.yaml") == f"experiment: {QUESTION}\n"
