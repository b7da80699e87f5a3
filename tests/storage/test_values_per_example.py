"""Values per example are stored exactly, in few bytes, and a damaged file is an error of one line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headtohead import files
from headtohead.data.metrics import BLEU, CHRF, EXACT_MATCH, LOG_ERROR
from headtohead.errors import HeadToHeadError
from headtohead.schema.metric import LOSS, PERPLEXITY, TOKEN_ACCURACY
from headtohead.storage.examples import SplitExamples, read_examples, write_examples
from headtohead.storage.run import EXAMPLES
from headtohead.storage.run_directory import checksums
from headtohead.storage.run_files import run_files
from made import case_table

HYPOTHESES = ["le chat noir", "la fille", "un chien"] * 40
REFERENCES = tuple((text,) for text in ["le chat noir", "la fille grande", "le chien"] * 40)


def split_of(examples: int = 130, dtype: Any = np.float32) -> SplitExamples:
    """Return values of 130 examples in 26 groups, of which the first 120 have outputs."""
    generator = np.random.default_rng(1)
    num_labels = generator.integers(1, 40, examples)
    return SplitExamples(
        examples_hash="ab" * 32,
        groups=np.arange(examples) // 5,
        num_labels=num_labels,
        losses=(num_labels * generator.uniform(1, 3, examples)).astype(dtype).astype(np.float64),
        correct=generator.integers(0, num_labels + 1),
        outputs=np.arange(len(HYPOTHESES)),
        counts={
            metric.name: np.asarray(metric.per_example(HYPOTHESES, REFERENCES))
            for metric in (EXACT_MATCH, BLEU, CHRF)
        },
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with values of both splits."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_examples(folder / EXAMPLES, {"valid": valid_of(split_of()), "test": split_of()})
    record_checksums(folder)
    return folder


def valid_of(split: SplitExamples) -> SplitExamples:
    return replace(split, outputs=np.array([], dtype=np.int64), counts={})


def record_checksums(run: Path) -> None:
    files.write_json(run / "status.json", {"state": "DONE", "files": checksums(run)})


def check_equal(left: SplitExamples, right: SplitExamples) -> None:
    for name, value in vars(left).items():
        other = getattr(right, name)
        if name == "counts":
            assert value.keys() == other.keys()
            for metric, counts in value.items():
                np.testing.assert_array_equal(counts, other[metric], strict=False)
        else:
            np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_read_as_they_were_written(tmp_path: Path, dtype: Any) -> None:
    split = split_of(dtype=dtype)
    write_examples(tmp_path / EXAMPLES, {"valid": valid_of(split), "test": split})
    record_checksums(tmp_path)
    by_split = read_examples(tmp_path)
    check_equal(by_split["valid"], valid_of(split))
    check_equal(by_split["test"], split)


def test_a_sentence_takes_about_fifty_bytes_and_the_same_values_give_the_same_file(
    run: Path, tmp_path: Path
) -> None:
    number = 2 * 130
    assert (run / EXAMPLES).stat().st_size < 50 * number
    write_examples(tmp_path / "again", {"valid": valid_of(split_of()), "test": split_of()})
    assert (run / EXAMPLES).read_bytes() == (tmp_path / "again").read_bytes()


def test_infinite_losses_are_kept_and_whole_numbers_beyond_float32_too(tmp_path: Path) -> None:
    split = split_of()
    split.losses[3] = np.inf
    split.num_labels[:] = 2**31 + np.arange(130)
    write_examples(tmp_path / EXAMPLES, {"test": split})
    record_checksums(tmp_path)
    check_equal(read_examples(tmp_path)["test"], split)


def test_the_score_of_a_metric_is_that_of_its_counts_by_group(run: Path) -> None:
    split = read_examples(run)["test"]
    labels = split.num_labels.sum()
    expected = {
        LOSS: split.losses.sum() / labels,
        PERPLEXITY: np.exp(split.losses.sum() / labels),
        TOKEN_ACCURACY: split.correct.sum() / labels,
        EXACT_MATCH: 1 / 3,
        LOG_ERROR: np.log(2 / 3),
    }
    for metric, score in expected.items():
        counts = split.counts_of(metric)
        assert counts is not None
        assert metric.pool is not None
        assert metric.pool(counts.sum(axis=0).tolist()) == pytest.approx(score, rel=1e-12)
        assert len(counts) == (26 if metric in (LOSS, PERPLEXITY, TOKEN_ACCURACY) else 24)
    one = split.counts_of(LOSS)
    assert one is not None
    np.testing.assert_allclose(one[2], [split.losses[10:15].sum(), split.num_labels[10:15].sum()])
    assert split.counts_of(replace(BLEU, name="other")) is None


def test_a_run_without_the_file_has_no_values_and_the_file_is_one_of_the_runs(run: Path) -> None:
    assert run / EXAMPLES in run_files(run)
    (run / EXAMPLES).rename(run / "aside")
    record_checksums(run)
    assert read_examples(run) == {}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def changed(**arrays: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Replace arrays of the test split by what a function returns for them; None removes one."""

    def damage(path: Path) -> None:
        stored = dict(load_file(path))
        for name, change in arrays.items():
            array = change(stored.pop(f"test/{name}"))
            if array is not None:
                stored[f"test/{name}"] = array
        hashes = json.dumps(dict.fromkeys(("valid", "test"), "ab" * 32))
        save_file(stored, path, {"examples_hashes": hashes})

    return damage


def without_hashes(path: Path) -> None:
    save_file(dict(load_file(path)), path)


@case_table(
    "damage",
    [
        cut,
        without_hashes,
        changed(losses=lambda array: None),
        changed(losses=lambda array: array * np.nan),
        changed(losses=lambda array: array[:, None]),
        changed(groups=lambda array: array[:-1]),
        changed(groups=lambda array: array.astype(np.float32)),
        changed(groups=lambda array: array + np.uint8(200)),
        changed(num_labels=lambda array: array.astype(np.int64) - 50),
        changed(outputs=lambda array: array + np.uint8(100)),
        changed(outputs=lambda array: array[:-1]),
        changed(**{"counts/bleu": lambda array: array[:, 0].copy()}),
        changed(**{"counts/bleu": lambda array: np.full(array.shape, np.inf)}),
    ],
    default=13,
)
def test_a_damaged_file_with_its_checksum_is_an_error_of_one_line(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run / EXAMPLES)
    record_checksums(run)
    with pytest.raises(
        HeadToHeadError, match=r"^cannot read '.*examples.safetensors': not a file of values per"
    ):
        read_examples(run)


def test_a_changed_byte_is_an_error_that_names_the_repair(run: Path) -> None:
    content = bytearray((run / EXAMPLES).read_bytes())
    content[-1] ^= 1
    (run / EXAMPLES).write_bytes(content)
    with pytest.raises(
        HeadToHeadError, match=r"examples.safetensors' is damaged: its sha256 .* --repair"
    ):
        read_examples(run)
