"""Writes run directories of a made-up study in the layout of training.

Scores are sampled around known effects, so that tests know the correct report.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from headtohead.planning.contrasts import Factorial, interaction_contrasts
from headtohead.storage.run_directory import checksums
from headtohead.testing.tiny import tiny_config

CEILING = 0.53
VERSIONS = {
    "headtohead": "0.1.0",
    "python": "3.11.2",
    "torch": "2.13.0",
    "git_commit": "0f1e2d3c4b5a69788796a5b4c3d2e1f001122334",
    "platform": "Linux-6.1.0-18-generic-x86_64-with-glibc2.36",
}
SENTENCES = [
    ("the black cat does not eat it", "le chat noir ne le mange pas"),
    ("she sees the small houses", "elle voit les petites maisons"),
    ("we give them a red apple", "nous leur donnons une pomme rouge"),
    ("the tall girl loves him", "la grande fille l aime"),
    ("you do not read the old book", "tu ne lis pas le vieux livre"),
    ("i buy two green cars", "j achète deux voitures vertes"),
    ("the dogs see the cats", "les chiens voient les chats"),
    ("the cats see the dogs", "les chats voient les chiens"),
]
PROBES = (0, 6)
EFFECTS = {"none": -0.45, "sinusoidal": 0.0, "rotary": 0.03, "independent-heads": 0.002}


@dataclass
class Study:
    """What to write; the defaults are the quickstart: 3 × 2 × 2 variants with 6 seeds."""

    name: str = "quickstart"
    axes: Mapping[str, Sequence[Any]] = field(
        default_factory=lambda: {
            "positional": ["sinusoidal", "rotary", "none"],
            "attention": ["split-heads", "independent-heads"],
            "masking": ["padding-causal", "causal"],
        }
    )
    seeds: Sequence[int] = (1, 2, 3, 4, 5, 6)
    states: Mapping[tuple[str, int], str] = field(default_factory=dict)
    equal_to: Mapping[str, str] = field(default_factory=dict)
    excluded: Sequence[Mapping[str, Any]] = ()
    reused: Mapping[tuple[str, int], str] = field(default_factory=dict)
    sentences: Sequence[tuple[str, str]] = tuple(SENTENCES)
    score: Callable[[Mapping[str, Any], int], float] | None = None
    config: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda axes: {}
    data: Mapping[str, Any] = field(default_factory=dict)
    run_data: Callable[[Mapping[str, Any], int], Mapping[str, Any]] = lambda axes, seed: {}
    question: str = "Which positional encoding, which attention style, which mask?"
    maps: bool = True
    steps: int = 900
    description: str | None = None
    primary: str = "test/exact_match"
    one_at_a_time: bool = False
    interactions: bool = False


def slug_of(axes: Mapping[str, Any]) -> str:
    return "-".join(str(value) for value in axes.values())


def write_study(runs_root: Path, study: Study | None = None) -> Path:
    """Write the whole experiment and return its folder."""
    study = study or Study()
    folder = runs_root / study.name
    folder.mkdir(parents=True)
    data = _data(study)
    variants = [_variant(study, axes) for axes in _grid(study)]
    planned = []
    for variant in variants:
        if variant["equal_to"]:
            continue
        for seed in study.seeds:
            run_hash = hashlib.sha256(f"{study.name}/{variant['slug']}/{seed}".encode()).hexdigest()
            directory = f"{variant['slug']}-s{seed}-{run_hash[:8]}"
            other = study.reused.get((variant["slug"], seed))
            reused = f"{other}/{directory}" if other else None
            planned.append(
                {
                    "variant": variant["slug"],
                    "seed": seed,
                    "run_hash": run_hash,
                    "directory": directory,
                    "reused_from": reused,
                }
            )
            state = study.states.get((variant["slug"], seed), "DONE")
            if state != "PLANNED":
                _run(runs_root / (reused or f"{study.name}/{directory}"), study, variant, seed, run_hash, state, data)
    _dump(folder / "experiment.json", _experiment(study, variants, planned, data))
    return folder


def _grid(study: Study) -> list[dict[str, Any]]:
    names, values = list(study.axes), list(study.axes.values())
    if not study.one_at_a_time:
        every = [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]
    else:
        first = {name: column[0] for name, column in study.axes.items()}
        every = [first] + [{**first, name: value} for name, column in study.axes.items() for value in column[1:]]
    left_out = [entry["axes"] for entry in study.excluded]
    return [axes for axes in every if axes not in left_out]


def _variant(study: Study, axes: dict[str, Any]) -> dict[str, Any]:
    slug = slug_of(axes)
    widened = axes.get("attention") == "independent-heads"
    total = 68_000 if widened else 48_213
    return {
        "slug": slug,
        "title": " · ".join(str(value) for value in axes.values()),
        "axes": axes,
        "equal_to": study.equal_to.get(slug),
        "equal_reason": ("with right padding a causal decoder never sees a pad" if slug in study.equal_to else None),
        "counts": {
            "total": total,
            "non_embedding": total - 14_000,
            "attention": total // 4,
            "flops_per_token": 6.0 * total,
            "inner_width": 128 if widened else 32,
            "path": {"encoder": "fused", "decoder": "fused", "cross": "fused"},
        },
        "d_ff": 64,
        "d_ff_asked": 64,
        "match": "none",
        "steps": 10,
        "evaluate_every": 1,
        "decoding_limit": 20,
        "order_invariant": axes.get("positional") == "none",
        "padding_hidden": axes.get("masking") != "causal",
        "pitfalls": [],
        "config": _config(study, axes),
    }


def _config(study: Study, axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a complete configuration; ``study.config`` changes fields of its sections."""
    config = tiny_config(train={"batch_tokens": 2048, "lr": 0.003}).model_dump(mode="json")
    config["positional"]["encoder"]["name"] = str(axes.get("positional", "sinusoidal"))
    for section, changes in study.config(axes).items():
        config[section] |= changes
    return config


def _data(study: Study) -> dict[str, Any]:
    return {
        "dataset": "toy-grammar",
        "data_hash": "ab" * 32,
        "licence": "MIT",
        "citation": "headtohead, toy-grammar",
        "languages": ["English", "French"],
        "split": "iid",
        "counts": {"train": 4500, "valid": 250, "test": 250},
        "dropped": {"empty": 0},
        "vocabulary": {"source": 104, "target": 117},
        "longest": {"source": 15, "target": 18},
        "leak": 0.0,
        "leaky": False,
        "bag_of_words_upper_bound": CEILING,
        "unk_rate": {"train": {"source": 0.0, "target": 0.0}, "test": {"source": 0.0, "target": 0.0125}},
        "normalise": "none",
        "tokens": "word",
        "notes": ["one right translation each"],
        **study.data,
    }


def _contrasts(study: Study, variants: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    baseline = variants[0]
    found: list[dict[str, Any]] = [
        {
            "kind": "variant",
            "name": f"{variant['title']} − baseline",
            "variant": variant["slug"],
            "baseline": baseline["slug"],
        }
        for variant in variants[1:]
    ]
    if study.one_at_a_time:
        return found
    slugs = {variant["slug"] for variant in variants}
    for axis, values in study.axes.items():
        for value in values[1:]:
            pairs = []
            for variant in variants:
                other = {**variant["axes"], axis: values[0]}
                if variant["axes"][axis] == value and slug_of(other) in slugs:
                    pairs.append([variant["slug"], slug_of(other)])
            found.append(
                {
                    "kind": "factor",
                    "name": f"{axis}: {value} − {values[0]}",
                    "axis": axis,
                    "value": value,
                    "against": values[0],
                    "given": {},
                    "pairs": pairs,
                    "pairs_missing": 0,
                }
            )
    return found + (_interactions(study, variants) if study.interactions else [])


def _interactions(study: Study, variants: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    cells = {
        tuple(values.index(variant["axes"][axis]) for axis, values in study.axes.items()): variant["slug"]
        for variant in variants
    }
    labels = {variant["slug"]: variant["axes"] for variant in variants}
    declared = interaction_contrasts([Factorial(tuple(study.axes), cells)], labels, variants[0]["slug"], labels)
    return [contrast.to_json() for contrast in declared]


def _experiment(
    study: Study, variants: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, Any]], data: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "format": 1,
        "name": study.name,
        "question": study.question,
        "description": study.description,
        "file": f"experiments/{study.name}.yaml",
        "text": f"question: {study.question}\nseeds: {len(study.seeds)}\n",
        "command": f"h2h run experiments/{study.name}.yaml",
        "created": "2026-01-05T10:00:00Z",
        "axes": list(study.axes),
        "baseline": variants[0]["slug"],
        "seeds": list(study.seeds),
        "variants": variants,
        "excluded": [
            {"slug": slug_of(entry["axes"]), "title": "", "source": "exclude", **entry} for entry in study.excluded
        ],
        "contrasts": _contrasts(study, variants),
        "match": "none",
        "metrics": {"primary": study.primary, "report": ["valid/loss", "test/bleu", "test/chrf"]},
        "probes": [
            {"source": study.sentences[i][0], "target": study.sentences[i][1]}
            for i in PROBES
            if i < len(study.sentences)
        ],
        "notes": ["11 contrasts and 6 seeds: a Holm-adjusted sign-flip p cannot pass 0.344"],
        "data": data,
        "runs": planned,
        "versions": VERSIONS,
    }


def _generator(*parts: object) -> np.random.Generator:
    return np.random.default_rng(int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16))


def true_score(axes: Mapping[str, Any], seed: int) -> float:
    """Return 0.93 plus effects; the seed shifts all variants equally, and masks that attend to padding lower batched
    scores.
    """
    shared = _generator("seed", seed).normal(0, 0.008)
    own = _generator(slug_of(axes), seed).normal(0, 0.006)
    effect = sum(EFFECTS.get(str(value), 0.0) for value in axes.values())
    open_pads = -0.06 if axes.get("masking") == "causal" else 0.0
    return round(min(1.0, max(0.0, 0.93 + effect + open_pads + shared + own)) * 250) / 250


def _run(
    folder: Path,
    study: Study,
    variant: Mapping[str, Any],
    seed: int,
    run_hash: str,
    state: str,
    data: Mapping[str, Any],
) -> None:
    folder.mkdir(parents=True)
    (folder / "attempts").mkdir()
    axes = variant["axes"]
    score = (study.score or true_score)(axes, seed)
    _dump(
        folder / "run.json",
        {
            "format": 1,
            "run_hash": run_hash,
            "experiment": folder.parent.name,
            "variant": variant["slug"],
            "seed": seed,
            **{name: value for name, value in variant.items() if name not in {"slug", "equal_to", "equal_reason"}},
            "plugins": [
                {
                    "family": "positional",
                    "name": str(axes.get("positional", "sinusoidal")),
                    "module": "headtohead_plugins.positional.x",
                    "distribution": "headtohead",
                    "version": "0.1.0",
                    "source_sha256": "cd" * 32,
                }
            ],
            "data": {**data, **study.run_data(axes, seed)},
            "execution": {
                "stack": [run_hash] * len(study.seeds),
                "member": 0,
                "threads": 1,
                "device": "cpu",
                "dtype": "float32",
            },
            "versions": VERSIONS,
            "created": "2026-01-05T10:00:00Z",
        },
    )
    reason, signature = _fate(state)
    _dump(
        folder / "status.json",
        {
            "state": state,
            "reason": reason,
            "signature": signature,
            "step": study.steps if state == "DONE" else 300,
            "steps": study.steps,
            "started": "2026-01-05T10:00:01Z",
            "ended": None if state in ("RUNNING", "LEASED") else "2026-01-05T10:00:15Z",
            "host": "box",
            "pid": 4242,
            "attempt": 1,
        },
    )
    _history(folder, study, variant, seed, state, score)
    if state == "DONE":
        _dump(folder / "results.json", _results(variant, seed, score))
        _translations(folder, study, seed, score, variant["slug"])
        if study.maps:
            _maps(folder, study, variant, seed)
        record_checksums(folder)


def record_checksums(run: Path) -> None:
    """Record the sha256 of the result files as they are, also after a test has changed them."""
    status = json.loads((run / "status.json").read_text(encoding="utf-8"))
    _dump(run / "status.json", status | {"files": checksums(run)})


def _fate(state: str) -> tuple[str | None, str | None]:
    if state == "DIVERGED":
        return "loss became NaN at step 300", None
    if state == "FAILED":
        return "ValueError: table of 64 positions is too short", "ValueError:table"
    return None, None


def _history(folder: Path, study: Study, variant: Mapping[str, Any], seed: int, state: str, score: float) -> None:
    noise = _generator("history", variant["slug"], seed)
    last = study.steps if state == "DONE" else 300
    lines = []
    for step in range(study.steps // 18, last + 1, study.steps // 18):
        loss = 0.05 + (1 - score) * 0.9 + 4.2 * math.exp(-step / 130) + noise.normal(0, 0.01)
        values: dict[str, float | None] = {"train/loss": loss * 1.04, "train/lr": 1e-3}
        if step % (study.steps // 9) == 0:
            values |= {"valid/loss": loss, "valid/perplexity": math.exp(loss), "valid/token_accuracy": 1 - loss / 6}
        lines.append(json.dumps({"step": step, "epoch": step / 120, "time": 1.7e9 + step / 60, "values": values}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _results(variant: Mapping[str, Any], seed: int, score: float) -> dict[str, Any]:
    axes = variant["axes"]
    noise = _generator("results", variant["slug"], seed)
    unpadded = min(1.0, score + (0.06 if axes.get("masking") == "causal" else 0.0))
    loss = 0.05 + (1 - score) * 0.9
    metrics = {
        "valid/loss": loss + noise.normal(0, 0.004),
        "valid/perplexity": math.exp(loss),
        "valid/token_accuracy": 1 - loss / 6,
        "test/loss": loss,
        "test/perplexity": math.exp(loss),
        "test/token_accuracy": 1 - loss / 6,
        "test/exact_match": score,
        "test/bleu": 100 * score**0.6,
        "test/chrf": 100 * score**0.5,
        "test/loss_unpadded": loss - 0.9 * (unpadded - score),
        "test/exact_match_unpadded": unpadded,
        "attention/encoder/entropy": 1.2,
        "attention/encoder/distance": 2.1,
        "attention/fused_difference": 2e-7,
        "system/peak_memory_mb": 412.0,
        "system/step_ms": 15.0 + noise.normal(0, 0.5),
        "system/train_seconds": 13.5 + noise.normal(0, 0.3),
        "system/wall_seconds": 14.2,
        "system/tokens_per_second": 91_000 + noise.normal(0, 900),
    }
    buckets = [
        {
            "bucket": f"{low}-{high}",
            "low": low,
            "high": high,
            "n": n,
            "scores": {"exact_match": exact, "bleu": 100 * score**0.6, "chrf": 100 * score**0.5, "loss": loss},
            "counts": {"exact_match": [n * exact, n], "loss": [6 * n * loss, 6 * n]},
        }
        for low, high, n in ((1, 5, 88), (6, 8, 97), (9, 11, 45), (12, 14, 20))
        for exact in [max(0.0, min(1.0, score - 0.02 * (low - 6)))]
    ]
    return {
        "metrics": metrics,
        "buckets": buckets,
        "best_step": None,
        "stopped_early": False,
        "signatures": {
            "bleu": "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
            "chrf": "nrefs:var|case:mixed|eff:yes|nc:6|nw:0|version:2.6.0",
        },
        "notes": [],
    }


def _translations(folder: Path, study: Study, seed: int, score: float, slug: str) -> None:
    noise = _generator("translations", slug, seed)
    correct = {int(index) for index in noise.permutation(250)[: round(250 * score)]}
    right = [f"{source}\t{target}\t{target}\t1" for source, target in study.sentences]
    wrong = [f"{source}\t{target}\t{' '.join(reversed(target.split()))}\t0" for source, target in study.sentences]
    lines = [(right if index in correct else wrong)[index % len(right)] for index in range(250)]
    text = "\n".join(["source\treferences\thypothesis\texact", *lines])
    (folder / "translations.tsv").write_text(text + "\n", encoding="utf-8")


def _maps(folder: Path, study: Study, variant: Mapping[str, Any], seed: int) -> None:
    noise = _generator("maps", variant["slug"], seed)
    tensors, probes = {}, []
    for index, chosen in enumerate(PROBES):
        if chosen >= len(study.sentences):
            continue
        source, target = study.sentences[chosen]
        tokens = {"source": [*source.split(), "<eos>"], "target": ["<sos>", *target.split()]}
        heads = {}
        for role in ("encoder", "decoder", "cross"):
            queries = tokens["source" if role == "encoder" else "target"]
            keys = tokens["target" if role == "decoder" else "source"]
            scores = noise.normal(size=(2, 4, len(queries), len(keys))) * 1.5
            if role == "decoder":
                scores = np.where(np.tri(len(queries), dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            tensors[f"{index}/{role}"] = weights.astype(np.float32)
            heads[role] = [[_describe(head) for head in layer] for layer in weights]
        probes.append(
            {
                "source": source,
                "target": target,
                "target_from": "reference",
                "source_tokens": tokens["source"],
                "target_tokens": tokens["target"],
                "heads": heads,
                "signed": False,
                "fused_difference": 1e-7,
            }
        )
    (folder / "attention").mkdir()
    save_file(tensors, folder / "attention" / "maps.safetensors")
    (folder / "attention" / "probes.json").write_text(json.dumps(probes, ensure_ascii=False), encoding="utf-8")


def _describe(weights: np.ndarray) -> dict[str, float]:
    queries, keys = weights.shape
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum()
    distance = (weights * np.abs(np.arange(queries)[:, None] - np.arange(keys))).sum()
    return {"entropy": float(entropy) / queries, "distance": float(distance) / queries}


def _dump(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def messy() -> Study:
    """The quickstart with every irregularity that a report must handle."""
    excluded = {"positional": "none", "attention": "independent-heads", "masking": "causal"}
    return Study(
        name="messy",
        states={
            ("rotary-split-heads-causal", 2): "DIVERGED",
            ("none-split-heads-causal", 3): "FAILED",
            ("rotary-independent-heads-padding-causal", 5): "PLANNED",
            ("rotary-independent-heads-padding-causal", 6): "RUNNING",
        },
        equal_to={"sinusoidal-split-heads-causal": "sinusoidal-split-heads-padding-causal"},
        excluded=[{"axes": excluded, "slug": slug_of(excluded), "source": "exclude", "reason": "not asked"}],
        reused={("none-split-heads-padding-causal", 1): "earlier"},
    )


if __name__ == "__main__":
    import sys

    write_study(Path(sys.argv[1]))
    write_study(Path(sys.argv[1]), messy())
