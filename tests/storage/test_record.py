"""Records of computed values, of which a plugin can give an invalid one."""

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.record import record_of
from headtohead.storage.results import ResultsRecord

FIELDS = {
    "buckets": (),
    "signatures": {},
    "best_step": None,
    "stopped_early": False,
    "notes": (),
}


def test_an_invalid_computed_value_is_named_in_a_line() -> None:
    record = record_of(ResultsRecord, FIELDS | {"metrics": {"test/exact_match": 0.5}})
    assert record.metrics == {"test/exact_match": 0.5}
    with pytest.raises(HeadToHeadError) as raised:
        record_of(ResultsRecord, FIELDS | {"metrics": {"test/exact_match": 95.2}})
    assert str(raised.value) == (
        "metrics: test/exact_match is '95.2', expected a number from 0 to 1"
    )
