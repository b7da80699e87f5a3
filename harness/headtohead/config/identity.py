"""Run identity: the fields that a run's result can depend on, and their hash.

Fields marked ``NotHashed`` are excluded. All other fields are included, also where they have their default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from headtohead.plugins.families import COMPONENTS
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.schema.sections import NotHashed


def run_identity(config: RunConfig, data_hash: str) -> dict[str, Any]:
    """Return the hashed fields of a run configuration with parsed options, and the hash of its data.

    Fields of an encoder and of cross-attention are left out where the model has none, and ``train.decay`` where the
    weight decay is 0. Other fields without effect are kept, so variants that differ in them alone are trained
    separately.
    """
    fields = identity_fields(config)
    absent = set(ROLES) - set(config.roles)
    for family in COMPONENTS:
        for role in absent & fields.get(family, {}).keys():
            del fields[family][role]
    if "encoder" in absent:
        del fields["model"]["encoder_layers"]
    if not fields["train"]["weight_decay"]:
        fields["train"].pop("decay", None)
    return {"config": fields, "data_hash": data_hash}


def run_hash(config: RunConfig, seed: int, data_hash: str) -> str:
    """Return the sha256 of a run's identity as 64 hexadecimal digits."""
    return run_hashes(run_identity(config, data_hash), [seed])[0]


def run_hashes(identity: Mapping[str, Any], seeds: Iterable[int]) -> list[str]:
    """Return the hash of an identity with each seed, which is the last name of the sorted JSON."""
    assert max(identity) < "seed", sorted(identity)
    text = json.dumps(
        identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    hashes = []
    for seed in seeds:
        with_seed = f'{text[:-1]},"seed":{seed}}}'
        hashes.append(hashlib.sha256(with_seed.encode()).hexdigest())
    return hashes


def identity_fields(section: BaseModel) -> dict[str, Any]:
    """Return the hashed fields of a section, nested sections and parsed options included."""
    return _hashed(section, section.model_dump(mode="json"))


def _hashed(section: BaseModel, dumped: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hashed fields of a section from all of its fields as JSON has them."""
    assert not section.model_extra, (
        "the class of the entry, which parses recorded options, decides what is hashed"
    )
    fields = type(section).model_fields
    hashed = {}
    for name, plain in dumped.items():
        if any(isinstance(marker, NotHashed) for marker in fields[name].metadata):
            continue
        value = getattr(section, name)
        hashed[name] = _hashed(value, plain) if isinstance(value, BaseModel) else plain
    return hashed
