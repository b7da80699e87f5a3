"""BLEU of test sentences with and without a source sentence that is also in the training set.

    python benchmarks/leak.py RUNS/EXPERIMENT [RUNS/EXPERIMENT ...]

For finished runs of experiments/tatoeba-leak.yaml. The script prepares the data of each run again, from the file in
its configuration, and divides its saved translations: *leaked* are those with a source sentence that is also in the
training set of the run. The table has means and 95 % intervals over seeds.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from headtohead.data import cache_root, prepare
from headtohead.schema.run_config import RunConfig
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import Translation, read_translations
from headtohead.training.evaluate import Translations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="+", type=Path, metavar="RUNS/EXPERIMENT")
    print("| experiment | variant | sentences | n per run | BLEU |\n|---|---|---|---:|---:|")
    for folder in parser.parse_args().experiments:
        for line in table(folder):
            print(line, flush=True)


def table(folder: Path) -> list[str]:
    """Return a row per variant and kind of sentences."""
    frames = load_frames(folder)
    lines = []
    for slug, variant in frames.by_slug.items():
        runs = [read_translations(frames.path(str(run))) for run in frames.rows(slug).index]
        parts = divided(RunConfig.model_validate(variant.config), runs)
        for kind, chosen in parts.items():
            scores = summarise([bleu(rows) for rows in chosen])
            number = f"{sum(map(len, chosen)) / len(chosen):,.0f}"
            score = f"{scores.mean:.1f} ({scores.low:.1f} to {scores.high:.1f})"
            lines.append(f"| {folder.name} | {variant.title} | {kind} | {number} | {score} |")
    return lines


def divided(config: RunConfig, runs: Sequence[Sequence[Translation]]) -> dict[str, list[list[Translation]]]:
    """Return the translations of each run by kind of sentence; kinds without sentences are omitted."""
    known = set(prepare(config.data, cache_root()).splits["train"].source_text)
    parts: dict[str, list[list[Translation]]] = defaultdict(list)
    for rows in runs:
        for kind, is_known in (("leaked", True), ("not leaked", False)):
            if chosen := [row for row in rows if (row.source in known) == is_known]:
                parts[kind].append(chosen)
    return dict(parts)


def bleu(rows: Sequence[Translation]) -> float:
    """Return the BLEU of translations against all their references."""
    sources, references, hypotheses = (
        tuple(getattr(row, side) for row in rows) for side in ("source", "references", "hypothesis")
    )
    return Translations(sources, references, hypotheses).scores().values["bleu"]


if __name__ == "__main__":
    main()
