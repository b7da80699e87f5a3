"""Run directories as training leaves them, written without training: small numbers, every file."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from headtohead.schema.run_config import EntryConfig, ModelConfig, PerRole, RunConfig, TrainConfig
from headtohead.storage.run_directory import checksums
from headtohead.testing.tiny import data_config

AXES: dict[str, list[str]] = {
    "positional": ["sinusoidal", "rotary", "none"],
    "attention": ["split-heads", "independent-heads"],
    "masking": ["padding-causal", "causal"],
}
EFFECT = {"rotary": 0.03, "none": -0.45, "independent-heads": 0.01, "causal": -0.06}
BEGAN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
STEPS = 300
LAYERS, HEADS = 2, 4
PROBES = (
    ("the small cat sees a red house", "le petit chat voit une maison rouge"),
    ("a dog that sleeps hears the bird", "un chien qui dort entend l' oiseau"),
)

MakeExperiment = Callable[..., Path]


@pytest.fixture
def make_experiment(tmp_path: Path) -> MakeExperiment:
    """Return a function that writes one experiment below ``tmp_path / "runs"``."""

    def make(**arguments: Any) -> Path:
        return write_experiment(tmp_path / "runs", **arguments)

    return make


@pytest.fixture(scope="session")
def experiment_writer() -> MakeExperiment:
    """Return a function that writes one experiment below a folder."""
    return write_experiment


@pytest.fixture
def change_json() -> Callable[..., None]:
    return update_json


@pytest.fixture
def store_uri(tmp_path: Path, store_template: Path) -> str:
    """The URI of an empty store beside ``tmp_path / "runs"``."""
    shutil.copyfile(store_template, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a tracking URI of the developer's shell away from the tests."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def write_experiment(
    runs_root: Path,
    *,
    name: str = "quickstart",
    axes: Mapping[str, Sequence[str]] | None = None,
    seeds: int = 2,
    states: Mapping[tuple[int, int], str] | None = None,
    unwritten: int = 0,
) -> Path:
    """Write an experiment and its runs; return its folder.

    ``states`` gives runs, by (variant index, seed), another state than DONE; the last ``unwritten``
    runs are planned but have no directory yet.
    """
    axes = dict(axes or AXES)
    variants = [_variant(dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]
    runs = [(index, variant, seed) for index, variant in enumerate(variants) for seed in range(1, seeds + 1)]
    records = [_run_record(name, variant, seed) for _, variant, seed in runs]
    folder = runs_root / name
    folder.mkdir(parents=True)
    plan = _experiment_record(name, axes, seeds, variants, records)
    _write_json(folder / "experiment.json", plan)
    for number, (index, _, seed) in enumerate(runs):
        if number < len(runs) - unwritten:
            state = (states or {}).get((index, seed), "DONE")
            write_run(folder / plan["runs"][number]["directory"], records[number], state, number)
    return folder


def write_run(folder: Path, record: dict[str, Any], state: str, number: int) -> None:
    """Write one run directory in the given state."""
    folder.mkdir(parents=True)
    began = BEGAN + timedelta(seconds=7 * number)
    finished = state not in {"PLANNED", "LEASED", "RUNNING"}
    steps = STEPS if state == "DONE" else STEPS // 2
    _write_json(folder / "run.json", record)
    _write_json(
        folder / "status.json",
        {
            "state": state,
            "reason": None if state in {"DONE", "RUNNING"} else f"loss was nan at step {steps}",
            "signature": "ValueError:bad" if state == "FAILED" else None,
            "step": steps,
            "steps": STEPS,
            "started": _iso(began),
            "ended": _iso(began + timedelta(seconds=42)) if finished else None,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "attempt": 1,
        },
    )
    skill = _skill(record)
    random = np.random.default_rng(_number(record["run_hash"]))
    last = _write_metrics(folder / "metrics.jsonl", steps, skill, began, random)
    (folder / "attempts").mkdir()
    (folder / "attempts/1.log").write_text("started\n", encoding="utf-8")
    if state == "DONE":
        _write_results(folder, skill, last, random)
        _write_attention(folder / "attention", random)
        _write_translations(folder / "translations.tsv", skill, random)
        save_file(
            {"encoder.embedding.weight": random.normal(size=(60, 16)).astype(np.float32)},
            folder / "checkpoint.safetensors",
        )
        _write_json(folder / "vocabulary.json", {"source": ["<pad>", "the"], "target": ["<pad>"]})
        update_json(folder / "status.json", files=checksums(folder))


def update_json(path: Path, **changes: Any) -> None:
    """Change some fields of a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    _write_json(path, content | changes)


def _variant(axes: dict[str, str]) -> dict[str, Any]:
    config = RunConfig(
        positional=_roles(axes.get("positional", "sinusoidal")),
        attention=_roles(axes.get("attention", "split-heads")),
        masking=_roles(axes.get("masking", "padding-causal")),
        data=data_config(dataset="toy-grammar"),
        model=ModelConfig(d_model=64, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS, d_ff=128),
        train=TrainConfig(steps=STEPS),
    )
    return {
        "slug": "-".join(axes.values()),
        "title": " · ".join(axes.values()),
        "axes": axes,
        "equal_to": None,
        "equal_reason": None,
        "counts": {
            "total": 155_000,
            "non_embedding": 140_000,
            "attention": 40_000,
            "flops_per_token": 310_000.0,
            "inner_width": 64,
            "path": {"encoder": "fused", "decoder": "fused", "cross": "fused"},
        },
        "d_ff": 128,
        "d_ff_asked": 128,
        "match": "none",
        "steps": 10,
        "evaluate_every": 1,
        "decoding_limit": 20,
        "order_invariant": False,
        "pitfalls": [],
        "config": config.model_dump(mode="json"),
    }


def _roles(name: str) -> PerRole:
    entry = EntryConfig(name=name)
    return PerRole(encoder=entry, decoder=entry, cross=entry)


def _run_record(experiment: str, variant: dict[str, Any], seed: int) -> dict[str, Any]:
    run_hash = hashlib.sha256(json.dumps([variant["config"], seed]).encode()).hexdigest()
    return {
        "format": 1,
        "run_hash": run_hash,
        "experiment": experiment,
        "variant": variant["slug"],
        "seed": seed,
        **{name: value for name, value in variant.items() if name not in {"slug", "equal_to", "equal_reason"}},
        "plugins": [],
        "data": _data_record(),
        "execution": {"stack": [run_hash], "member": 0, "threads": 1, "device": "cpu", "dtype": "float32"},
        "versions": _versions(),
        "created": _iso(BEGAN),
    }


def _data_record() -> dict[str, Any]:
    return {
        "dataset": "toy-grammar",
        "data_hash": hashlib.sha256(b"toy").hexdigest(),
        "licence": "MIT",
        "citation": "",
        "languages": ["English", "French"],
        "split": "iid",
        "normalise": "none",
        "tokens": "word",
        "counts": {"train": 4500, "valid": 250, "test": 250},
        "dropped": {},
        "vocabulary": {"source": 104, "target": 117},
        "longest": {"source": 15, "target": 18},
        "leak": 0.0,
        "leaky": False,
        "bag_of_words_upper_bound": 0.53,
        "unk_rate": {"test": {"source": 0.0, "target": 0.0}},
        "notes": [],
    }


def _versions() -> dict[str, str]:
    return {"headtohead": "0.1.0", "python": "3.11", "torch": "2.13", "git_commit": "c0ffee", "platform": "Linux"}


def _experiment_record(
    name: str,
    axes: Mapping[str, Sequence[str]],
    seeds: int,
    variants: list[dict[str, Any]],
    records: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "format": 1,
        "name": name,
        "question": "Which positional encoding, which attention style, which mask?",
        "description": None,
        "file": f"experiments/{name}.yaml",
        "text": "question: which?\n",
        "command": f"h2h run experiments/{name}.yaml",
        "created": _iso(BEGAN),
        "axes": list(axes),
        "baseline": variants[0]["slug"],
        "seeds": list(range(1, seeds + 1)),
        "variants": variants,
        "excluded": [
            {
                "axes": {"masking": "none"},
                "slug": "no-mask",
                "title": "no mask",
                "reason": "the decoder would see the target",
                "source": "exclude",
            }
        ],
        "contrasts": [],
        "match": "none",
        "metrics": {"primary": "test/exact_match", "report": ["valid/loss", "test/bleu"]},
        "probes": [{"source": source, "target": target} for source, target in PROBES],
        "notes": [],
        "data": _data_record(),
        "runs": [
            {
                "variant": record["variant"],
                "seed": record["seed"],
                "run_hash": record["run_hash"],
                "directory": f"{record['variant']}-s{record['seed']}-{record['run_hash'][:8]}",
                "reused_from": None,
            }
            for record in records
        ],
        "versions": _versions(),
    }


def _skill(record: dict[str, Any]) -> float:
    wobble = (_number(record["run_hash"]) % 100 - 50) / 2500
    return 0.93 + sum(EFFECT.get(value, 0.0) for value in record["axes"].values()) + wobble


def _write_metrics(
    path: Path, steps: int, skill: float, began: datetime, random: np.random.Generator
) -> dict[str, float]:
    lines = []
    for step in range(5, steps + 1, 5):
        loss = 0.1 + 4 * (1 - skill) + 4.2 * float(np.exp(-step / 60)) + abs(random.normal()) / 30
        values = {"train/loss": loss, "train/lr": 1e-3 * min(1.0, step / 50)}
        if step % 50 == 0:
            values |= {
                "valid/loss": loss * 1.1,
                "valid/perplexity": float(np.exp(loss * 1.1)),
                "valid/token_accuracy": min(1.0, skill * step / steps),
            }
        time = (began + timedelta(seconds=step / 8)).timestamp()
        lines.append({"step": step, "epoch": step / 36, "time": time, "values": values})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return values


def _write_results(folder: Path, skill: float, last: dict[str, float], random: np.random.Generator) -> None:
    roles = ("encoder", "decoder", "cross")
    metrics = {
        "valid/loss": last["valid/loss"],
        "test/loss": last["valid/loss"],
        "test/perplexity": 1.23,
        "test/token_accuracy": 0.98,
        "test/exact_match": skill,
        "test/bleu": 98 * skill,
        "test/chrf": 99 * skill,
        "test/loss_unpadded": 0.2,
        "test/exact_match_unpadded": min(1.0, skill + 0.02),
        **{f"attention/{role}/entropy": float(random.uniform(0.5, 2)) for role in roles},
        **{f"attention/{role}/distance": float(random.uniform(1, 4)) for role in roles},
        "attention/fused_difference": 1e-7,
        "system/peak_memory_mb": 412.5,
        "system/step_ms": 8.25,
        "system/train_seconds": 36.0,
        "system/wall_seconds": 42.0,
        "system/tokens_per_second": 21000.0,
    }
    buckets = [
        {
            "bucket": bucket,
            "low": low,
            "high": high,
            "n": 80,
            "scores": {"exact_match": skill - low / 100, "bleu": 90.0, "chrf": 95.0, "loss": 0.2},
            "counts": {"exact_match": [80 * skill, 80.0], "loss": [40.0, 200.0]},
        }
        for bucket, low, high in [("1-5", 1, 5), ("6-8", 6, 8), ("9-11", 9, 11)]
    ]
    _write_json(
        folder / "results.json",
        {
            "metrics": metrics,
            "buckets": buckets,
            "signatures": {"bleu": "x", "chrf": "y"},
            "best_step": None,
            "stopped_early": False,
            "notes": [],
        },
    )


def _write_attention(folder: Path, random: np.random.Generator) -> None:
    tensors: dict[str, np.ndarray] = {}
    probes = []
    for index, (source, target) in enumerate(PROBES):
        words = {"encoder": [*source.split(), "<eos>"], "decoder": ["<sos>", *target.split()]}
        sizes = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}
        for role, (query, key) in sizes.items():
            tensors[f"{index}/{role}"] = _maps(len(words[query]), len(words[key]), role, random)
        heads = [[{"entropy": 1.2, "distance": 2.0}] * HEADS] * LAYERS
        probes.append(
            {
                "source": source,
                "target": target,
                "target_from": "reference",
                "source_tokens": words["encoder"],
                "target_tokens": words["decoder"],
                "heads": dict.fromkeys(("encoder", "decoder", "cross"), heads),
                "signed": False,
                "fused_difference": 1e-7,
            }
        )
    folder.mkdir()
    save_file(tensors, folder / "maps.safetensors")
    _write_json(folder / "probes.json", probes)


def _maps(queries: int, keys: int, role: str, random: np.random.Generator) -> np.ndarray:
    shift = random.integers(-1, 2, size=(LAYERS, HEADS, 1, 1))
    distance = np.arange(queries)[:, None] + shift - np.arange(keys)[None, :]
    scores = random.normal(size=(LAYERS, HEADS, queries, keys)) - np.abs(distance) * random.uniform(
        0.2, 2, size=(LAYERS, HEADS, 1, 1)
    )
    if role == "decoder":
        scores = np.where(np.tri(queries, keys, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: np.ndarray = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    return result


def _write_translations(path: Path, skill: float, random: np.random.Generator) -> None:
    rows = ["source\treferences\thypothesis\texact"]
    for number in range(250):
        source, target = PROBES[number % 2]
        right = random.random() < skill
        hypothesis = target if right else target.split()[0]
        rows.append(f"{source}\t{target} ||| {target} !\t{hypothesis}\t{int(right)}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _number(run_hash: str) -> int:
    return int(run_hash[:12], 16)


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
