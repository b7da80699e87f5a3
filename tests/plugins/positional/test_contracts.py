"""Every invariant under options other than the defaults, and in every role.

The default tier checks one of the choices, the slow tier all.
"""

import pytest

from headtohead.testing.contracts import VariantContract
from headtohead.testing.tiny import tiny_config


def everywhere(name, **options):
    return {role: {"name": name, **options} for role in ("encoder", "decoder", "cross")}


def both(name, **options):
    return {"name": name, **options}


def fire(encoder, **options):
    return {"encoder": encoder, "decoder": {"name": "fire", **options}}


CHOICES = {
    "t5-relative in every role": everywhere("t5-relative"),
    "t5-relative with other buckets": both("t5-relative", buckets=24, max_distance=20),
    "shaw-relative in every role": everywhere("shaw-relative", clip=5),
    "shaw-relative on keys, by head": everywhere("shaw-relative", on="keys", heads="own", clip=5),
    "shaw-relative on values": both("shaw-relative", on="values", clip=6),
    "shaw-relative on values, by head": everywhere("shaw-relative", on="values", heads="own"),
    "kerple-log in every role, by layer": everywhere("kerple-log", layers="own"),
    "fire": fire("sinusoidal"),
    "fire, shared": fire("kerple-log", layers="shared"),
    "fire, with more units": fire("none", hidden=50, threshold=2.0),
    "sandwich in every role": everywhere("sandwich", width=16),
    "shape with little room": both("shape", max_shift=1),
    "randomised rotary": both("randomised", of="rotary", numbers=300),
    "randomised alibi": both("randomised", of="alibi", numbers=2000, max_length=40),
    "drawn against fixed": {"encoder": "shape", "decoder": both("randomised", of="alibi")},
}


DEFAULT = "shaw-relative on keys, by head"
PARAMS = [one if name == DEFAULT else pytest.param(one, marks=pytest.mark.slow) for name, one in CHOICES.items()]


class TestEveryChoice(VariantContract):
    @pytest.fixture(params=PARAMS, ids=CHOICES.keys())
    def config(self, request):
        return tiny_config(request.param)


@pytest.mark.slow
class TestWithSharedHeads(VariantContract):
    """Two query heads share each key and value head."""

    @pytest.fixture(params=[*CHOICES.values()][::4], ids=[*CHOICES.keys()][::4])
    def config(self, request):
        return tiny_config(request.param, {"name": "grouped-query", "kv_heads": 2})
