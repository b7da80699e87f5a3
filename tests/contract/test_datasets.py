"""The invariants of datasets on every built-in dataset that needs no file."""

import pytest

from headtohead.plugins.registry import current, find_dataset
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject

REGISTRY = current()
COMPUTED = sorted(
    name
    for name, entry in REGISTRY.entries["dataset"].items()
    if "file" not in entry.entry.Options.model_fields
)
assert {"toy-grammar", "copy", "mqar", "induction", "parity", "addition"} <= set(COMPUTED)


INVARIANTS = {invariant.name: invariant for invariant in DATASET_INVARIANTS}


def subject_of(name, folder, **options):
    """Load the subject of a built-in dataset."""
    dataset = find_dataset(name)
    return DatasetSubject.load(name, dataset, dataset.Options.model_validate(options), folder)


@pytest.mark.parametrize("name", COMPUTED)
def test_every_invariant_holds_for_a_computed_dataset(name, tmp_path):
    size = {"size": 200} if "size" in find_dataset(name).Options.model_fields else {}
    subject = subject_of(name, tmp_path, **size)
    verdicts = {invariant.name: invariant(subject) for invariant in DATASET_INVARIANTS}
    assert {
        name: str(verdict) for name, verdict in verdicts.items() if verdict.state != "holds"
    } == {}


def sentences(path, words):
    """Write 40 sentence pairs to a tab-separated file; return its path."""
    path.write_text("".join(f"{words} {number}\t{number} {words}\n" for number in range(40)))
    return str(path)


def test_parts_holds_for_pairs_with_separate_files_for_validation_and_test(tmp_path):
    files = {
        option: sentences(tmp_path / f"{option}.tsv", option.replace("_", " "))
        for option in ("file", "valid_file", "test_file")
    }
    verdict = INVARIANTS["parts"](subject_of("pairs", tmp_path, **files))
    assert verdict.state == "holds", str(verdict)


def test_texts_holds_for_a_tatoeba_file_with_an_empty_side(tmp_path):
    file = tmp_path / "pairs.tsv"
    sentences(file, "some words")
    file.write_text(file.read_text() + "No translation.\t\n")
    subject = subject_of("tatoeba", tmp_path, file=str(file))
    assert any(not pair.target for pair in subject.first["grouped"].pairs)
    verdict = INVARIANTS["texts"](subject)
    assert verdict.state == "holds", str(verdict)
