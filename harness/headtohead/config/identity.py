"""Run identity: the fields that a run's result depends on, and their hash.

Fields marked ``NotHashed`` are excluded, and fields marked ``HashIfChanged`` while they have the marker's
value. All other fields are included, also where they have their default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headtohead.schema.run_config import RunConfig
from headtohead.schema.sections import HashIfChanged, NotHashed


def run_identity(config: RunConfig, data_hash: str) -> dict[str, Any]:
    """Return the hashed fields of a run configuration with parsed options, and the hash of its data."""
    return {"config": identity_fields(config), "data_hash": data_hash}


def run_hash(config: RunConfig, seed: int, data_hash: str) -> str:
    """Return the sha256 of a run's identity as 64 hexadecimal digits."""
    return run_hashes(run_identity(config, data_hash), [seed])[0]


def run_hashes(identity: Mapping[str, Any], seeds: Iterable[int]) -> list[str]:
    """Return the hash of an identity with each seed.

    ``seed`` is the last name of the sorted JSON, so the text before it is hashed only once.
    """
    assert all(name < "seed" for name in identity), sorted(identity)
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    shared = hashlib.sha256(text.removesuffix("}").encode())
    hashes = []
    for seed in seeds:
        digest = shared.copy()
        digest.update(f',"seed":{seed}}}'.encode())
        hashes.append(digest.hexdigest())
    return hashes


def identity_fields(section: BaseModel) -> dict[str, Any]:
    """Return the hashed fields of a section, nested sections and parsed options included."""
    assert not section.model_extra, "the class of the entry, which parses recorded options, decides what is hashed"
    plain = section.model_dump(mode="json")
    values = {name: getattr(section, name) for name in type(section).model_fields}
    return {
        name: identity_fields(values[name]) if isinstance(values[name], BaseModel) else plain[name]
        for name, info in type(section).model_fields.items()
        if is_hashed(info, plain.get(name))
    }


def is_hashed(info: FieldInfo, value: Any) -> bool:
    """Return whether a field with this value is hashed."""
    for marker in info.metadata:
        if isinstance(marker, NotHashed):
            return False
        if isinstance(marker, HashIfChanged) and marker.value == value and type(marker.value) is type(value):
            return False
    return True
