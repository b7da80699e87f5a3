"""Compare answers and scores of two versions of headtohead: the check of a change that must change neither.

``python benchmarks/pinned.py answers FILE`` writes the answers of thirty made studies, ``scores FILE`` trains small
reference studies and writes their scores, and ``compare OLD NEW`` prints every difference. Scores must be equal bit
for bit on one processor, numbers of answers within 1e-9, and words must be equal.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

CLOSE = 1e-9
"""Largest difference of a number of an answer."""

POSITIONS = {"positional": ["sinusoidal", "rotary", "alibi", "none"]}
CROSSED = {
    "positional": ["sinusoidal", "rotary"],
    "attention": ["split-heads", "independent-heads"],
}
SIDES = {"variant": "rotary", "against": "sinusoidal"}

Axes = Mapping[str, Any]


def score(
    axes: Axes,
    seed: int,
    effects: Mapping[str, float],
    noise: Mapping[str, float],
    seed_noise: float = 0.01,
    digits: int = 6,
) -> float:
    """Return 0.6 plus the effects of a variant's values, an effect of the seed, and noise of the variant.

    Args:
        axes: The values of the variant.
        seed: The seed.
        effects: The effect of a value; of several values, joined by ``&``, if a variant has all of them.
        noise: Standard deviation of a value's noise; that of ``""`` is the default.
        seed_noise: Standard deviation of the seed's effect, which all variants share.
        digits: Number of decimals.
    """
    values = {str(value) for value in axes.values()}
    shared = np.random.default_rng(seed).normal(0, seed_noise)
    own = np.random.default_rng([seed, *map(ord, "-".join(sorted(values)))]).normal()
    sd = max([noise.get("", 0.01), *(noise.get(value, 0.0) for value in values)])
    effect = sum(effects[name] for name in effects if set(name.split("&")) <= values)
    return round(0.6 + effect + shared + sd * own, digits)


def scored(
    noise: Mapping[str, float] | None = None, **effects: float
) -> Callable[[Axes, int], float]:
    """Return the score of made studies with effects by value."""
    return partial(score, effects=effects, noise=noise or {})


def studies() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the options of each made study."""
    one = {"axes": POSITIONS, "one_at_a_time": True}
    effects = scored(rotary=0.03, none=-0.2)
    for seeds in (2, 3, 6, 12):
        yield f"{seeds} seeds", one | {"seeds": range(1, seeds + 1), "score": effects}
    for margin in (0.005, 0.03, 0.2):
        yield f"margin {margin}", one | {"margin": margin, "score": effects}
    yield "late margin", one | {"margin": 0.03, "late": True, "score": effects}
    yield "two variants", {"axes": {"positional": ["sinusoidal", "rotary"]}, "score": effects}
    yield "no effect", one | {"score": scored()}
    yield "identical", one | {"score": partial(score, effects={}, noise={"": 0.0})}
    yield (
        "constant difference",
        one | {"score": partial(score, effects={"rotary": 0.02}, noise={"": 0.0})},
    )
    yield "coarse", one | {"score": partial(score, effects={"rotary": 0.02}, noise={}, digits=2)}
    for value in ("none", "sinusoidal"):
        yield f"{value} is noisy", one | {"score": scored({value: 0.1}, rotary=0.03)}
    yield "diverged", one | {"score": effects, "states": {("rotary", 2): "DIVERGED"}}
    yield "failed", one | {"score": effects, "states": {("none", 3): "FAILED"}}
    yield (
        "missing",
        one | {"score": effects, "states": {("alibi", 5): "PLANNED", ("alibi", 6): "RUNNING"}},
    )
    yield "equal by construction", one | {"score": effects, "equal_to": {"none": "sinusoidal"}}
    yield "product", {"axes": CROSSED, "score": effects}
    interaction = partial(
        score, effects={"rotary": 0.03, "rotary&independent-heads": 0.05}, noise={}
    )
    yield "interaction", {"axes": CROSSED, "interactions": True, "score": interaction}
    yield (
        "interaction, margin",
        {"axes": CROSSED, "interactions": True, "score": interaction, "margin": 0.04},
    )
    three = CROSSED | {"masking": ["padding-causal", "causal"]}
    yield "three axes", {"axes": three, "score": effects, "interactions": True}
    omitted = {"positional": "rotary", "attention": "independent-heads", "masking": "causal"}
    excluded = [{"axes": omitted, "source": "exclude", "reason": "not asked"}]
    yield "incomplete product", {"axes": three, "score": effects, "excluded": excluded}
    yield "between", {"axes": three, "between": True, "score": effects}
    yield "two data sets", {"axes": {"data": ["addition", "copy"], **CROSSED}, "score": effects}
    metrics = [SIDES | {"name": name, "metric": name} for name in ("test/loss", "test/bleu")]
    yield "declared", one | {"score": effects, "declared": metrics}
    lengths = {"name": "long", "metric": "test/exact_match", "lengths": [9, 14]}
    yield "declared lengths", one | {"score": effects, "declared": [SIDES | lengths]}
    yield "primary loss", one | {"score": effects, "primary": "test/loss", "margin": 0.02}


def answers() -> dict[str, Any]:
    """Return ``answer.json`` of each made study, as a report writes it."""
    from headtohead.analysis.study import Analysis
    from headtohead.report.answer_file import answer_file
    from headtohead.report.content import Report
    from headtohead.storage.frames import load_frames
    from made.fake_study import Study, write_study

    found = {}
    for name, options in studies():
        for partial_results in (False, True) if "states" in options else (False,):
            label = f"{name}, partial" if partial_results else name
            with tempfile.TemporaryDirectory() as folder:
                study = Study(**{"maps": False} | options)
                frames = load_frames(write_study(Path(folder), study))
                analysis = Analysis(frames, allow_partial=partial_results)
                found[label] = json.loads(answer_file(Report(analysis)))
    return found


REFERENCES: dict[str, dict[str, Any]] = {
    "encoder-decoder": {
        "data": {"dataset": "toy-grammar", "size": 600},
        "model": {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 32, "dropout": 0.1},
        "design": [{"one_at_a_time": {"positional": ["rotary", "t5-relative", "none"]}}],
    },
    "attention styles": {
        "data": {"dataset": "mqar", "size": 400},
        "model": {
            "architecture": "decoder-only",
            "d_model": 16,
            "heads": 2,
            "layers": 2,
            "d_ff": 32,
        },
        "design": [
            {"one_at_a_time": {"attention": ["value-residual", "gated", "gated-delta", "linear"]}}
        ],
    },
    "networks and norms": {
        "data": {"dataset": "copy", "size": 400},
        "model": {
            "architecture": "decoder-only",
            "d_model": 16,
            "heads": 2,
            "layers": 1,
            "d_ff": 32,
        },
        "design": [
            {
                "one_at_a_time": {
                    "feed_forward": ["swiglu", "relu2"],
                    "norm": ["rmsnorm", "dynamic-tanh"],
                }
            }
        ],
    },
}
"""Reference studies: sections of ``base`` and the design."""


def scores() -> dict[str, Any]:
    """Train the reference studies with one thread and return the metrics of every run."""
    import headtohead

    found: dict[str, Any] = {}
    for name, reference in REFERENCES.items():
        with tempfile.TemporaryDirectory() as folder:
            experiment = {
                "question": f"Are the scores of {name} unchanged?",
                "base": {
                    "data": reference["data"],
                    "model": reference["model"],
                    "train": {"steps": 60, "batch_tokens": 256, "lr": 0.005, "schedule": "cosine"},
                },
                "design": reference["design"],
                "seeds": 2,
            }
            result = headtohead.run(
                experiment,
                name=name.replace(" ", "-"),
                runs=folder,
                tracking=False,
                report=False,
                threads=1,
                log=lambda line: None,
            )
            for file in sorted(result.experiment.glob("*/results.json")):
                metrics = json.loads(file.read_text())["metrics"]
                label = file.parent.name.rpartition("-")[0]
                kept = {
                    key: value for key, value in metrics.items() if not key.startswith("system/")
                }
                found[f"{name}/{label}"] = kept
    return found


def differences(old: Any, new: Any, close: float, path: str = "") -> Iterator[str]:
    """Yield a line for each value that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if key not in old or key not in new:
                yield f"{path}/{key}: only in the {'new' if key in new else 'old'} file"
            else:
                yield from differences(old[key], new[key], close, f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, close, f"{path}/{index}")
    elif isinstance(old, float) and isinstance(new, float):
        both_missing = math.isnan(old) and math.isnan(new)
        if not both_missing and not abs(old - new) <= close * max(1.0, abs(old)):
            yield f"{path}: {old!r}, now {new!r}"
    elif old != new:
        yield f"{path}: {old!r}, now {new!r}"


def main(arguments: list[str]) -> int:
    """Write a file or compare two; return the exit code."""
    kinds = {"answers": answers, "scores": scores}
    match arguments:
        case [kind, file] if kind in kinds:
            Path(file).write_text(json.dumps(kinds[kind](), indent=1, sort_keys=True))
            return 0
        case ["compare", old, new]:
            before, after = (json.loads(Path(name).read_text()) for name in (old, new))
            close = CLOSE if any("contrasts" in value for value in before.values()) else 0.0
            lines = list(differences(before, after, close))
            print(*lines, f"{len(before)} studies or runs, {len(lines)} differences", sep="\n")
            return 1 if lines else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
