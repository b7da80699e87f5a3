"""Run identity: the fields that a run's result can depend on, and their hash.

Fields marked ``NotHashed`` are excluded. All other fields are included, also where they have their default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from headtohead.config.builder import FAMILIES
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.schema.schedules import unused_fields
from headtohead.schema.sections import NotHashed


def run_identity(config: RunConfig, data_hash: str) -> dict[str, Any]:
    """Return the hashed fields of a run configuration with parsed options, and the hash of its data.

    Fields of an encoder and of cross-attention are left out where the model has none, and fields of training without
    effect: those of other schedules, and the parameters of a weight decay of 0. Other fields without effect are kept,
    so variants that differ in them alone are trained separately.
    """
    fields, unused = identity_fields(config), {*ROLES} - {*config.roles}
    for family in fields.keys() & FAMILIES:
        fields[family] = {
            role: entry for role, entry in fields[family].items() if role not in unused
        }
    if "encoder" in unused:
        del fields["model"]["encoder_layers"]
    train = fields["train"]
    without_effect = set(unused_fields(train["schedule"]))
    if not train["weight_decay"]:
        without_effect |= {"decay"}
    fields["train"] = {name: value for name, value in train.items() if name not in without_effect}
    return {"config": fields, "data_hash": data_hash}


def run_hash(config: RunConfig, seed: int, data_hash: str) -> str:
    """Return the sha256 of a run's identity as 64 hexadecimal digits."""
    return run_hashes(run_identity(config, data_hash), [seed])[0]


def run_hashes(identity: Mapping[str, Any], seeds: Iterable[int]) -> list[str]:
    """Return the hash of an identity with each seed, which is the last name of the sorted JSON."""
    assert all(name < "seed" for name in identity), sorted(identity)
    text = json.dumps(
        identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return [hashlib.sha256(f'{text[:-1]},"seed":{seed}}}'.encode()).hexdigest() for seed in seeds]


def identity_fields(section: BaseModel) -> dict[str, Any]:
    """Return the hashed fields of a section, nested sections and parsed options included."""
    assert not section.model_extra, (
        "the class of the entry, which parses recorded options, decides what is hashed"
    )
    fields = type(section).model_fields
    return {
        name: identity_fields(value)
        if isinstance(value := getattr(section, name), BaseModel)
        else plain
        for name, plain in section.model_dump(mode="json").items()
        if not any(isinstance(marker, NotHashed) for marker in fields[name].metadata)
    }
