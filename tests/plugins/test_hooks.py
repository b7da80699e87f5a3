"""Names, signatures and results of hooks: a mistake is named with the hook and what it takes or must return."""

from pathlib import Path

import pytest

from headtohead.model.counting import count
from headtohead.plugins.registry import current
from headtohead.testing import tiny_config
from made import plugin_file, refused

pytestmark = pytest.mark.usefixtures("own_registry")


def load(family, body):
    registry = current()
    registry.add_file(Path("mine.py"), plugin_file(body, family).encode())
    return registry


@pytest.mark.parametrize(
    ("family", "body", "message"),
    [
        (
            "attention",
            "def post_head(self, heads): return heads",
            "unknown hook 'post_head'; did you mean 'post_heads'?",
        ),
        (
            "positional",
            "def rotate(self, x, positions, role): return x",
            "write 'def rotate(self, x, positions, role, layer)'; got rotate(self, x, positions, role)",
        ),
        (
            "positional",
            "def bias(self, key_positions, query_positions, role, layer): return None",
            "write 'def bias(self, query_positions, key_positions, role, layer)'; got bias(self, key_positions, "
            "query_positions, role, layer)",
        ),
        (
            "attention",
            "def geometry(self, options, model): return None",
            "write '@classmethod def geometry(cls, options, model)'; got geometry(self, options, model)",
        ),
    ],
)
def test_a_wrong_name_or_signature_is_an_error_when_the_plugin_is_loaded(family, body, message):
    assert refused(load, family, body) == f"plugin 'mine.py' (file): {family} 'own': {message}"


@pytest.mark.parametrize(
    ("family", "body"),
    [
        ("positional", "def bias(self, q, k, role, layer=None, more=0): return None"),
        ("positional", "def _slopes(self): return 1"),
        ("attention", "def extra_repr(self): return 'own'"),
    ],
)
def test_other_names_of_arguments_and_helpers_are_accepted(family, body):
    assert load(family, body).find(family, "own").entry.__name__ == "Own"


@pytest.mark.parametrize(
    ("family", "body", "message"),
    [
        (
            "attention",
            "def post_heads(self, heads, x, values): return heads.sum(-1)",
            "a tensor [1, 1, 4, 5]; return a tensor [member 1, batch 1, head 4, query 5, value_width 4]",
        ),
        (
            "attention",
            "def post_heads(self, heads, x, values): return heads.double()",
            "a tensor of torch.float64; return torch.float32, the dtype of its arguments",
        ),
        ("attention", "def transform(self, q, k): return q", "Tensor; return a tuple of two tensors"),
        (
            "attention",
            "geometry = classmethod(lambda cls, options, model: (4, 4))",
            "tuple; return a headtohead.plugin.Geometry",
        ),
        (
            "positional",
            "def rotate(self, x, positions, role, layer): return x[:, :1, :1]",
            "a tensor [1, 1, 1, 5, 4]; return a tensor [member 1, batch 1, head 4, time 5, key_width 4]",
        ),
        (
            "masking",
            "def mask(self, role, query, key, lengths): return (query[:, None] - key)[None]",
            "a tensor of torch.int64; return torch.bool, True where a query attends to a key",
        ),
    ],
)
def test_a_wrong_result_is_an_error_with_the_hook_and_what_to_return(family, body, message):
    load(family, body)
    hook = body.removeprefix("def ").partition("(" if body.startswith("def") else " =")[0]
    assert refused(count, tiny_config(**{family: "own"}), 9, 9, 5, 5) == f"Own.{hook} returned {message}"


def test_an_import_that_uses_the_global_generator_is_refused():
    assert refused(load, "attention", "table = torch.randn(4)") == (
        "plugin 'mine.py' (file) samples from torch's global generator when it is imported; sample in build with "
        "self.parameter or self.buffer"
    )
