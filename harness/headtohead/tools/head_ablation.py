"""``heads.json`` of a finished run: what masking its heads changes, beside its recorded maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import LoadedRun, load
from headtohead.storage.leases import Busy
from headtohead.storage.run_directory import leased
from headtohead.training.evaluate import translator
from headtohead.training.heads import head_effects

FILE = "heads.json"


def masked_heads(path: Path, *, decode: bool = True, again: bool = False) -> dict[str, Any]:
    """Return what masking the heads of a run changes, and write it into the run's directory.

    Args:
        path: The run's directory.
        decode: Whether to translate too, for BLEU and exact match.
        again: Whether to measure a run that has the file already.

    Raises:
        HeadToHeadError: If the run cannot be loaded, its style has no heads to mask, or another
            process writes the run.
    """
    if (path / FILE).is_file() and not again:
        known: dict[str, Any] = files.read_json(path / FILE)
        return known
    record = _measured(load(path), decode)
    try:
        with leased(path) as writer:
            writer.write_json(FILE, record)
    except Busy as error:
        raise HeadToHeadError(f"run {error}; wait for it, then type the same command") from error
    return record


def _measured(run: LoadedRun, decode: bool) -> dict[str, Any]:
    if "test" not in run.data.splits:
        raise HeadToHeadError(
            f"run '{run.path.name}' was imported without sentences; heads are masked on the test "
            "sentences of a run that was trained here"
        )
    kind = run.config.evaluate.decode
    write = None
    if decode and kind != "none":
        beam = run.config.evaluate.beam
        write = translator(kind, run.data.target_vocabulary, run.decoding_limit, beam)
    found = head_effects(run.model, run.data, write)
    maps = _maps(run.path)
    return {
        "format": 1,
        "split": "test",
        "whole": dict(found.whole),
        "heads": [one.to_json() | maps.get((one.role, one.layer, one.head), {}) for one in found.heads],
        "metrics": found.metrics(),
    }


def _maps(path: Path) -> dict[tuple[str, int, int], dict[str, float]]:
    """Return entropy and distance of each head, means over the recorded sentences."""
    if not (path / "attention" / "probes.json").is_file():
        return {}
    collected: dict[tuple[str, int, int], dict[str, list[float]]] = {}
    for probe in files.read_json(path / "attention" / "probes.json"):
        for role, layers in probe["heads"].items():
            for layer, heads in enumerate(layers):
                for head, described in enumerate(heads):
                    held = collected.setdefault((role, layer, head), {})
                    for name, value in described.items():
                        if value is not None:
                            held.setdefault(name, []).append(value)
    return {key: {name: sum(values) / len(values) for name, values in held.items()} for key, held in collected.items()}
