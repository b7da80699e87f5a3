"""Write run directories of a study without training, in the layout of training.

Scores are sampled around known effects, so that tests know the correct report.
"""

import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save, save_file

from headtohead.config.clauses import change_clause, within
from headtohead.config.phrases import axis_name, field_phrase, named_phrase
from headtohead.planning.contrasts import Factorial, interaction_contrasts
from headtohead.planning.naming import Combination, clause_of, titles_of
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS, comparison_group
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import current
from headtohead.schema.phrases import spoken
from headtohead.schema.run_config import SECTIONS
from headtohead.storage.attention_maps import entropy, mean_distance
from headtohead.storage.examples import SplitExamples, write_examples
from headtohead.storage.frames import Frames
from headtohead.storage.run import EXAMPLES
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
REASONS = {
    "DIVERGED": "loss became NaN at step 300",
    "FAILED": "ValueError: table of 64 positions is too short",
}
CREATED = "2026-01-05T10:00:00Z"

GROUPS = (DATA_AXIS, SIZE_AXIS)

Json = dict[str, Any]
Axes = Mapping[str, Any]


@dataclass
class Study:
    """What to write; the defaults are the quickstart: 3 × 2 × 2 variants with 6 seeds.

    ``between`` makes the study one between two configurations: the first and the second value of every axis. The
    margin is that of the primary metric, ``late`` if results existed before it; ``declared`` are the arguments of
    `declared_contrast` for further contrasts. Each size has twice the parameters of the one before, unless
    ``same_parameters``.
    """

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
    excluded: Sequence[Json] = ()
    reused: Mapping[tuple[str, int], str] = field(default_factory=dict)
    sentences: Sequence[tuple[str, str]] = tuple(SENTENCES)
    score: Callable[[Axes, int], float] | None = None
    config: Callable[[Axes], Axes] = lambda axes: {}
    data: Json = field(default_factory=dict)
    run_data: Callable[[Axes], Json] = lambda axes: {}
    question: str = "Which positional encoding, which attention style, which mask?"
    maps: bool = True
    weights: bool = False
    steps: int = 900
    description: str | None = None
    primary: str = "test/exact_match"
    one_at_a_time: bool = False
    between: bool = False
    interactions: bool = False
    margin: float | None = None
    late: bool = False
    declared: Sequence[Json] = ()
    tuning: Json | None = None
    same_parameters: bool = False


def slug_of(axes: Axes) -> str:
    return "-".join(str(value) for value in axes.values())


def phrases_of(axes: Axes) -> dict[str, str]:
    """Return what people call axis values: the phrases of registered entries, else axis and value."""
    phrases = {}
    for axis, value in axes.items():
        if axis in COMPONENTS and value in current().entries[axis]:
            phrases[axis] = named_phrase(axis, value, {})
        elif _field(axis) is not None:
            phrases[axis] = field_phrase(axis.rpartition(".")[2], _field(axis), value)
        else:
            phrases[axis] = spoken(value)
    return phrases


def _field(axis: str) -> Any:
    """Return the field of a section that is an axis; None for other axes, such as options of datasets."""
    section, _, name = axis.partition(".")
    return SECTIONS[section].model_fields.get(name) if section in SECTIONS else None


def combination_of(axes: Axes) -> Combination:
    return Combination(axes, phrases_of(axes))


def write_study(runs_root: Path, study: Study | None = None) -> Path:
    """Write the experiment and its runs, and return its folder."""
    study = study or Study()
    folder = runs_root / study.name
    folder.mkdir(parents=True)
    variants = [_variant(study, axes) for axes in _design(study)]
    titles = titles_of([combination_of(variant["axes"]) for variant in variants], GROUPS)
    for variant, title in zip(variants, titles, strict=True):
        variant["title"] = title
    planned = []
    for variant in variants:
        for seed in study.seeds if not variant["equal_to"] else ():
            run_hash = hashlib.sha256(f"{study.name}/{variant['slug']}/{seed}".encode()).hexdigest()
            directory = f"{variant['slug']}-s{seed}-{run_hash[:8]}"
            other = study.reused.get((variant["slug"], seed))
            reused = f"{other}/{directory}" if other else None
            run = {"variant": variant["slug"], "seed": seed, "run_hash": run_hash}
            planned.append(run | {"directory": directory, "reused_from": reused})
            state = study.states.get((variant["slug"], seed), "DONE")
            if state != "PLANNED":
                _run(
                    runs_root / (reused or f"{study.name}/{directory}"), study, variant, run, state
                )
    _dump(folder / "experiment.json", _experiment(study, variants, planned))
    return folder


def experiment_text(
    name: str, equal_to: Mapping[str, str | None], runs: Sequence[tuple[str, int, str]]
) -> str:
    """Return the text of an ``experiment.json`` that asks "Which?", without contrasts.

    ``equal_to`` has the variant that each one equals, or None, by slug; ``runs`` are variant, seed and directory.
    """
    study = Study(name=name, question="Which?", axes={}, one_at_a_time=True)
    variants = [
        _variant(study, {"variant": slug}) | {"equal_to": equal} for slug, equal in equal_to.items()
    ]
    planned = [
        {"variant": slug, "seed": seed, "run_hash": f"{slug}{seed}", "directory": directory}
        for slug, seed, directory in runs
    ]
    changes: Json = {
        "contrasts": [],
        "notes": [],
        "seeds": [*dict.fromkeys(seed for _, seed, _ in runs)],
    }
    return json.dumps(_experiment(study, variants, planned) | changes)


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a record, such as ``experiment.json``; a folder stands for its ``experiment.json``."""
    file = path / "experiment.json" if path.is_dir() else path
    _dump(file, json.loads(file.read_text(encoding="utf-8")) | changes)


def tuning_trial(rate: float, losses: Sequence[float]) -> Json:
    """Return the record of a tuned learning rate with these validation losses, one per seed from 1001."""
    runs = [
        {"run_hash": f"{rate}-{seed}", "seed": seed, "scores": {"valid/loss": loss}}
        for seed, loss in enumerate(losses, 1001)
    ]
    return {"values": {"train.lr": rate}, "runs": runs}


def with_losses(
    frames: Frames, loss: Callable[[str, int, int], float | None], steps: Sequence[int]
) -> Frames:
    """Return frames with losses by variant, seed and step; the last of each finished run is its result."""
    runs = frames.runs
    rows = [
        (run, step, float(step), 0.0, "valid/loss", value)
        for run, variant, seed in zip(runs.index, runs["variant"], runs["seed"], strict=True)
        for step in steps
        if (value := loss(variant, seed, step)) is not None
    ]
    histories = pd.DataFrame(rows, columns=["run", "step", "epoch", "time", "metric", "value"])
    last = (
        histories.groupby("run")["value"].last().reindex(runs.index).where(runs["state"] == "DONE")
    )
    return replace(
        frames, histories=histories, runs=runs.assign(**{"valid/loss": last.astype(float)})
    )


def _design(study: Study) -> list[Json]:
    names, values = list(study.axes), list(study.axes.values())
    first, last = ({name: column[end] for name, column in study.axes.items()} for end in (0, -1))
    if study.between:
        added = [first | {name: last[name]} for name in names]
        design = [first, last, *added, *(last | {name: first[name]} for name in names)]
    elif study.one_at_a_time:
        design = [first] + [
            first | {name: value} for name, column in study.axes.items() for value in column[1:]
        ]
    else:
        design = [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]
    omitted = [entry["axes"] for entry in study.excluded]
    return [axes for axes in design if axes not in omitted]


def _variant(study: Study, axes: Json) -> Json:
    slug, widened = slug_of(axes), axes.get("attention") == "independent-heads"
    non_embedding = 54_000 if widened else 34_213
    if SIZE_AXIS in axes and not study.same_parameters:
        non_embedding *= 2 ** [*study.axes[SIZE_AXIS]].index(axes[SIZE_AXIS])
    total = non_embedding + 14_000
    config = tiny_config(train={"batch_tokens": 2048, "lr": 0.003}).model_dump(mode="json")
    config["positional"]["encoder"]["name"] = str(axes.get("positional", "sinusoidal"))
    for section, changes in study.config(axes).items():
        config[section] = config.get(section, {}) | changes
    return {
        "slug": slug,
        "title": ", ".join(phrases_of(axes).values()),
        "axes": axes,
        "phrases": phrases_of(axes),
        "equal_to": study.equal_to.get(slug),
        "equal_reason": "with right padding a causal decoder never sees a pad"
        if slug in study.equal_to
        else None,
        "counts": {
            "total": total,
            "non_embedding": non_embedding,
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
        "rate_decays": config["train"]["schedule"]["name"] in ("cosine", "wsd"),
        "pitfalls": [],
        "config": config,
    }


def _data(study: Study) -> Json:
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
        "unk_rate": {
            "train": {"source": 0.0, "target": 0.0},
            "test": {"source": 0.0, "target": 0.0125},
        },
        "normalise": "none",
        "tokens": "word",
        "notes": ["one right translation each"],
        **study.data,
    }


def difference(
    variant: str,
    against: str,
    metric: str | None = None,
    lengths: Sequence[int] | None = None,
    against_metric: str | None = None,
    against_lengths: Sequence[int] | None = None,
) -> list[Json]:
    """Return the setting of a contrast of two variants."""
    left = {"variant": variant, "weight": 1, "metric": metric, "lengths": lengths}
    right = {"metric": against_metric or metric, "lengths": against_lengths or lengths}
    return [left, {"variant": against, "weight": -1} | right]


def declared_contrast(
    name: str, variant: str, against: str, expect: Json | None = None, **fields: Any
) -> Json:
    """Return a declared contrast, with the metrics and lengths that `difference` takes."""
    settings = [difference(variant, against, **fields)]
    fields = {"name": name, "is_named": True, "settings": settings, "expect": expect}
    return {"family": "declared", **fields}


def effect(axis: str, value: Any, against: Any) -> Json:
    """Return the two values of an axis that a contrast compares."""
    return {"axis": axis, "value": value, "against": against}


def _contrasts(study: Study, variants: Sequence[Json]) -> list[Json]:
    slugs = {variant["slug"]: variant["axes"] for variant in variants}
    baseline = variants[0]["slug"]
    found: list[Json] = [
        {
            "family": "variant",
            "name": _change_from(study, variant["axes"], slugs[against]),
            "settings": [difference(slug, against)],
        }
        for variant in variants[1:]
        if (against := slug_of(slugs[baseline] | comparison_group(variant["axes"])))
        != (slug := variant["slug"])
    ]
    if study.between:
        start, end = (list(slugs.values())[i] for i in (0, 1))
        for kind, other, name in (("added", start, "the first"), ("taken", end, "the second")):
            for axis in study.axes:
                left, right = (slug_of(other | {axis: side[axis]}) for side in (end, start))
                if {left, right} <= slugs.keys():
                    found.append(
                        {
                            "family": kind,
                            "name": f"{_change(axis, end[axis], start[axis])} in {name}",
                            "settings": [difference(left, right)],
                            "effects": [effect(axis, end[axis], start[axis])],
                        }
                    )
        return [
            contrast
            for contrast in found
            if contrast["settings"][0][0]["variant"] == slug_of(end)
            or contrast["family"] != "variant"
        ]
    if study.one_at_a_time:
        return found
    for axis, (first, *values) in study.axes.items():
        for value in values:
            settings = [
                difference(slug, other)
                for slug, axes in slugs.items()
                if axes[axis] == value and (other := slug_of({**axes, axis: first})) in slugs
            ]
            found.append(
                {
                    "family": "factor",
                    "name": _change(axis, value, first),
                    "settings": settings,
                    "effects": [effect(axis, value, first)],
                }
            )
    if study.interactions:
        cells = {
            tuple(values.index(axes[axis]) for axis, values in study.axes.items()): slug
            for slug, axes in slugs.items()
        }
        declared = interaction_contrasts(
            [
                Factorial(
                    tuple((axis,) for axis in study.axes),
                    cells,
                    slugs,
                    baseline,
                    {slug: phrases_of(axes) for slug, axes in slugs.items()},
                )
            ],
            slugs,
        )
        found += [contrast.to_json() for contrast in declared]
    return found


def _change_from(study: Study, axes: Axes, baseline: Axes) -> str:
    """Return the clause for the change from a baseline; of a product, a single change has its setting."""
    clause = clause_of(combination_of(axes), combination_of(baseline))
    same = {axis: value for axis, value in axes.items() if value == baseline[axis]}
    is_single = len(same) == len(axes) - 1
    if study.between or study.one_at_a_time or not same or not is_single:
        return clause
    return within(clause, ", ".join(phrases_of(same).values()))


def _change(axis: str, value: Any, against: Any) -> str:
    """Return the clause for a change between two values of an axis."""
    return change_clause(phrases_of({axis: value})[axis], phrases_of({axis: against})[axis])


def _experiment(study: Study, variants: Sequence[Json], planned: Sequence[Json]) -> Json:
    excluded = [
        {"slug": slug_of(entry["axes"]), "title": "", "source": "exclude", **entry}
        for entry in study.excluded
    ]
    margin = {"value": study.margin, "since": CREATED, "late": study.late}
    return {
        "format": 1,
        "name": study.name,
        "question": study.question,
        "description": study.description,
        "file": f"experiments/{study.name}.yaml",
        "text": f"question: {study.question}\nseeds: {len(study.seeds)}\n",
        "command": f"h2h run experiments/{study.name}.yaml",
        "created": CREATED,
        "axes": list(study.axes),
        "axis_names": {axis: axis_name(axis.split(".")) for axis in study.axes},
        "baseline": variants[0]["slug"],
        "seeds": list(study.seeds),
        "variants": variants,
        "excluded": excluded,
        "contrasts": [
            *_contrasts(study, variants),
            *(declared_contrast(**fields) for fields in study.declared),
        ],
        "margins": {study.primary: margin} if study.margin else {},
        "tuning": study.tuning,
        "match": "none",
        "metrics": {"primary": study.primary, "report": ["valid/loss", "test/bleu", "test/chrf"]},
        "probes": [
            dict(zip(("source", "target"), study.sentences[i], strict=True))
            for i in PROBES
            if i < len(study.sentences)
        ],
        "notes": ["the plan has a note"],
        "data": _data(study),
        "runs": planned,
        "versions": VERSIONS,
    }


def _generator(*parts: object) -> np.random.Generator:
    return np.random.default_rng(int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16))


def true_score(axes: Axes, seed: int) -> float:
    """Return 0.93 plus effects; the seed shifts all variants equally, and masks that attend to padding lower batched
    scores.
    """
    shared = _generator("seed", seed).normal(0, 0.008)
    own = _generator(slug_of(axes), seed).normal(0, 0.006)
    effect = sum(EFFECTS.get(str(value), 0.0) for value in axes.values())
    open_pads = -0.06 if axes.get("masking") == "causal" else 0.0
    return round(min(1.0, max(0.0, 0.93 + effect + open_pads + shared + own)) * 250) / 250


def _run(folder: Path, study: Study, variant: Json, run: Json, state: str) -> None:
    (folder / "attempts").mkdir(parents=True)
    axes, seed, done = variant["axes"], run["seed"], state == "DONE"
    score = (study.score or true_score)(axes, seed)
    plugin = {
        "family": "positional",
        "name": str(axes.get("positional", "sinusoidal")),
        "module": "headtohead_plugins.positional.x",
        "distribution": "headtohead",
        "version": "0.1.0",
        "source_sha256": "cd" * 32,
    }
    stack = {"stack": [run["run_hash"]] * len(study.seeds), "member": 0, "threads": 1}
    record = {
        name: value
        for name, value in variant.items()
        if name not in {"slug", "phrases", "equal_to", "equal_reason"}
    }
    record |= run | {
        "format": 1,
        "experiment": folder.parent.name,
        "plugins": [plugin],
        "data": _data(study) | study.run_data(axes),
        "execution": stack | {"device": "cpu", "dtype": "float32"},
        "versions": VERSIONS,
        "created": CREATED,
    }
    _dump(folder / "run.json", record)
    status = {
        "state": state,
        "reason": REASONS.get(state),
        "signature": "ValueError:table" if state == "FAILED" else None,
        "step": study.steps if done else 300,
        "steps": study.steps,
        "started": "2026-01-05T10:00:01Z",
        "ended": None if state in ("RUNNING", "LEASED") else "2026-01-05T10:00:15Z",
        "host": "box",
        "pid": 4242,
        "attempt": 1,
    }
    _dump(folder / "status.json", status)
    slug, sentences = variant["slug"], tuple(study.sentences)
    history = _history(slug, seed, score, study.steps, study.steps if done else 300)
    (folder / "metrics.jsonl").write_text(history, encoding="utf-8")
    if done:
        _dump(folder / "results.json", _results(variant, seed, score))
        (folder / "translations.tsv").write_text(
            _translations(sentences, slug, seed, score), encoding="utf-8"
        )
        (folder / EXAMPLES).write_bytes(_examples(slug, seed, score))
        if study.maps:
            tensors, probes = _maps(sentences, slug, seed)
            (folder / "attention").mkdir()
            (folder / "attention" / "maps.safetensors").write_bytes(tensors)
            (folder / "attention" / "probes.json").write_text(probes, encoding="utf-8")
        if study.weights:
            save_file(
                {"embedding": np.full((1, 60, 16), seed, np.float32)},
                folder / "checkpoint.safetensors",
            )
            _dump(folder / "vocabulary.json", {"source": ["<pad>", "the"], "target": ["<pad>"]})
        record_checksums(folder)


def record_checksums(run: Path) -> None:
    """Record the sha256 of the result files as they are, also after a test has changed them."""
    edit(run / "status.json", files=checksums(run))


@lru_cache(maxsize=4096)
def _history(slug: str, seed: int, score: float, steps: int, last: int) -> str:
    noise = _generator("history", slug, seed)
    lines = []
    for step in range(steps // 18, last + 1, steps // 18):
        loss = 0.05 + (1 - score) * 0.9 + 4.2 * math.exp(-step / 130) + noise.normal(0, 0.01)
        values: dict[str, float | None] = {"train/loss": loss * 1.04, "train/lr": 1e-3}
        if step % (steps // 9) == 0:
            values |= {
                "valid/loss": loss,
                "valid/perplexity": math.exp(loss),
                "valid/token_accuracy": 1 - loss / 6,
            }
        lines.append(
            json.dumps(
                {"step": step, "epoch": step / 120, "time": 1.7e9 + step / 60, "values": values}
            )
        )
    return "\n".join(lines) + "\n"


def _results(variant: Json, seed: int, score: float) -> Json:
    noise = _generator("results", variant["slug"], seed)
    unpadded = min(1.0, score + (0.06 if variant["axes"].get("masking") == "causal" else 0.0))
    loss = 0.05 + (1 - score) * 0.9
    translated = {"exact_match": score, "bleu": 100 * score**0.6, "chrf": 100 * score**0.5}
    losses = {"loss": loss, "perplexity": math.exp(loss), "token_accuracy": 1 - loss / 6}
    metrics = {
        **{f"valid/{name}": value for name, value in losses.items()},
        "valid/loss": loss + noise.normal(0, 0.004),
        **{f"test/{name}": value for name, value in (losses | translated).items()},
        "test/loss_unpadded": loss - 0.9 * (unpadded - score),
        "test/exact_match_unpadded": unpadded,
        "attention/encoder/entropy": 1.2,
        "attention/encoder/distance": 2.1,
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
            "scores": translated | {"exact_match": exact, "loss": loss},
            "counts": {"exact_match": [n * exact, n], "loss": [6 * n * loss, 6 * n]},
        }
        for low, high, n in ((1, 5, 88), (6, 8, 97), (9, 11, 45), (12, 14, 20))
        for exact in [max(0.0, min(1.0, score - 0.02 * (low - 6)))]
    ]
    signatures = {
        "bleu": "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        "chrf": "nrefs:var|case:mixed|eff:yes|nc:6|nw:0|version:2.6.0",
    }
    others: Json = {"best_step": None, "stopped_early": False, "notes": []}
    return {"metrics": metrics, "buckets": buckets, "signatures": signatures} | others


def _correct(slug: str, seed: int, score: float) -> set[int]:
    """Return the test sentences that a run translates exactly; their fraction is the rounded score."""
    order = _generator("translations", slug, seed).permutation(250)
    return {int(index) for index in order[: round(250 * score)]}


@lru_cache(maxsize=4096)
def _examples(slug: str, seed: int, score: float) -> bytes:
    """Return the file of values per example: some sentences have a larger loss in every run than others."""
    exact = np.zeros((250, 2))
    exact[:, 1] = 1
    exact[[*_correct(slug, seed, score)], 0] = 1
    difficulty = np.cos(np.arange(250) * 0.4 * math.pi) * 0.01  # the sum of all sentences is 0
    losses = 6 * (0.05 + (1 - score) * 0.9) + difficulty
    numbers = np.arange(250)
    split = SplitExamples(
        examples_hash="e" * 64,
        groups=numbers,
        num_labels=np.full(250, 6),
        losses=losses,
        correct=np.full(250, 3),
        outputs=numbers,
        counts={"exact_match": exact},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / EXAMPLES
        write_examples(path, {"test": split})
        return path.read_bytes()


@lru_cache(maxsize=4096)
def _translations(
    sentences: tuple[tuple[str, str], ...], slug: str, seed: int, score: float
) -> str:
    correct = _correct(slug, seed, score)
    lines = ["source\treferences\thypothesis\texact"]
    for index in range(250):
        source, target = sentences[index % len(sentences)]
        given = target if index in correct else " ".join(reversed(target.split()))
        lines.append(f"{source}\t{target}\t{given}\t{int(index in correct)}")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=4096)
def _maps(sentences: tuple[tuple[str, str], ...], slug: str, seed: int) -> tuple[bytes, str]:
    """Return the content of the files of maps and of probes."""
    noise = _generator("maps", slug, seed)
    tensors, probes = {}, []
    for index, chosen in enumerate(PROBES):
        if chosen >= len(sentences):
            continue
        source, target = sentences[chosen]
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
            statistics = np.stack([entropy(weights), mean_distance(weights)], axis=-1).tolist()
            heads[role] = [
                [dict(zip(("entropy", "distance"), head, strict=True)) for head in layer]
                for layer in statistics
            ]
        probe = {
            "source": source,
            "target": target,
            "target_from": "reference",
            "heads": heads,
            "signed": False,
        }
        lists = {f"{side}_tokens": names for side, names in tokens.items()}
        probes.append(probe | lists)
    return save(tensors), json.dumps(probes, ensure_ascii=False)


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def messy() -> Study:
    """Return the quickstart with every irregularity that a report must handle."""
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
        excluded=[{"axes": excluded, "source": "exclude", "reason": "not asked"}],
        reused={("none-split-heads-padding-causal", 1): "earlier"},
    )
