"""Plugin files with a single fault each, and the experiment that `h2h run` must refuse to train.

``caught_by`` names what refuses a fault in `h2h run`: an invariant, a check at the sizes of the study, or the moment
("import", "build") or kind ("reads", "global", "replaces") of an error without a check. None: no check detects the
fault, and ``why`` has the reason.
"""

import random
import textwrap
from dataclasses import dataclass
from pathlib import Path

LEAK = "out = out + 0.3 * values.mean(-2, keepdim=True)"
"""The mean of all keys, later ones too."""


@dataclass(frozen=True)
class OutsideFault:
    """A plugin file with a fault.

    Attributes:
        name: Name of the fault.
        description: The fault in a few words.
        source: The plugin file.
        caught_by: What refuses it in `h2h run`; None if nothing can.
        family: Family of its entry ``own``.
        seeds: Seeds of the experiment.
        why: Why no check detects it.
    """

    name: str
    description: str
    source: str
    caught_by: str | None
    family: str = "attention"
    seeds: int = 2
    why: str = ""


FAULTS: list[OutsideFault] = []

BASES = {
    "attention": ("Attention", "split-heads"),
    "positional": ("Positional", "sinusoidal"),
    "norm": ("Norm", "layernorm"),
    "feed_forward": ("FeedForward", "relu"),
    "masking": ("Masking", "causal"),
}
"""By family: the base class of the faulty entry, and the entry of the baseline."""


def plugin(body, family, before):
    """Return a plugin file with an entry ``own``."""
    base, _ = BASES[family]
    parts = [
        '"""A plugin with a fault."""',
        "import math\nfrom pathlib import Path\nimport torch\nfrom torch import nn",
        f"from headtohead.plugin import {base}, Options, hookimpl",
        textwrap.dedent(before),
        f'class Own({base}):\n    """A variant."""\n',
        textwrap.indent(textwrap.dedent(body), "    "),
        f"@hookimpl\ndef register_{family}s():\n    return {{'own': Own}}\n",
    ]
    return "\n".join(parts)


def add(name, description, caught_by, body, family="attention", before="", **others):
    """Add a fault of an entry with this body."""
    source = plugin(body, family, before)
    FAULTS.append(OutsideFault(name, description, source, caught_by, family, **others))


GATE = """
def build(self):
    self.weight = self.parameter(self.context.d_model, self.context.geometry.heads, std=0.1)
    BUILD

def post_heads(self, heads, x, values):
    gate = (x.flatten(1, 2) @ self.weight).sigmoid().view(*x.shape[:3], -1, 1).transpose(2, 3)
    out = heads * gate
    CHANGE
    return out
"""


def add_gate(name, description, caught_by, change="pass", build="pass", before="", **others):
    """Add a fault of a sound gate: lines after its formula, in ``build``, or before the class."""
    body = GATE.replace("BUILD", build).replace("CHANGE", change.replace("\n", "\n    "))
    add(name, description, caught_by, body, before=before, **others)


# -- leaks -----------------------------------------------------------------------------------------

ISOLATION = "isolation-as-trained"

add_gate(
    "leak-in-evaluation",
    "later tokens, in evaluation only",
    "causality",
    f"if not self.training: {LEAK}",
)
add_gate(
    "leak-in-training", "later tokens, in training only", "isolation", f"if self.training: {LEAK}"
)
add_gate(
    "leak-without-gradients", "later tokens, without gradients only", "causality",
    f"if not torch.is_grad_enabled(): {LEAK}",
)  # fmt: skip
add_gate(
    "leak-in-layer-2",
    "later tokens, in the second layer",
    "causality",
    f"if self.context.layer == 1: {LEAK}",
)
add_gate(
    "leak-width", "later tokens, in models wider than 16", ISOLATION, f"if x.shape[-1] > 16: {LEAK}"
)
add_gate(
    "leak-head-width",
    "later tokens, with heads of width 16 or more",
    ISOLATION,
    f"if heads.shape[-1] >= 16: {LEAK}",
)
add_gate(
    "leak-length-32", "later tokens, in sequences of 32", ISOLATION, f"if x.shape[2] == 32: {LEAK}"
)
add_gate(
    "leak-chunks",
    "later tokens, in sequences that chunks of 16 divide",
    ISOLATION,
    f"if x.shape[2] % 16 == 0: {LEAK}",
)
add_gate(
    "leak-batch",
    "later tokens, in batches of more than 24",
    ISOLATION,
    f"if x.shape[1] > 24: {LEAK}",
)
add_gate(
    "leak-d-ff", "later tokens, in models with a wide feed-forward network", ISOLATION,
    f"if self.context.model.d_ff >= 64: {LEAK}",
)  # fmt: skip
add_gate(
    "leak-late-position", "the last token, in sequences of more than 28", "isolation",
    "if values.shape[-2] > 28: out = out + 0.3 * values[..., -1:, :]",
)  # fmt: skip
add_gate(
    "leak-large-values",
    "later tokens, if values are large",
    "causality",
    f"if heads.abs().max() > 3: {LEAK}",
)
add(
    "leak-token-id", "the next token, if the vocabulary has more than 12 tokens", ISOLATION,
    """
    def mix_embeddings(self, x):
        return x + 0.1 * x.roll(-1, 2) if self.context.words > 12 else x
    """,
)  # fmt: skip
add_gate(
    "members-mixed",
    "the mean over members",
    "causality",
    "out = out + 0.1 * out.mean(0, keepdim=True)",
)
add_gate(
    "members-mixed-if-many", "the mean over members, if there are more than five", ISOLATION,
    "if len(out) > 5: out = out + 0.1 * out.mean(0, keepdim=True)", seeds=6,
)  # fmt: skip
add(
    "mask-shows-a-later-key", "one later key is visible", "mask-properties",
    """
    properties = frozenset({"hides-future", "shows-the-rest"})

    def mask(self, role, query_positions, key_positions, lengths):
        hidden = key_positions[None, None] <= query_positions[None, :, None]
        return hidden | ((query_positions == 20)[None, :, None] & (key_positions == 21)[None, None])
    """,
    family="masking",
)  # fmt: skip
add(
    "feed-forward-shifts", "a feed-forward network reads the next token", "causality",
    """
    def activate(self, x):
        return torch.relu(x) + 0.1 * torch.roll(x, -1, 1)
    """,
    family="feed_forward",
)  # fmt: skip
add(
    "feed-forward-shifts-if-many", "the same, with more than 700 tokens in a batch", ISOLATION,
    """
    def activate(self, x):
        return torch.relu(x) + (0.1 * torch.roll(x, -1, 1) if x.shape[1] > 700 else 0)
    """,
    family="feed_forward",
)  # fmt: skip
add(
    "norm-over-the-batch", "a norm with the statistics of the batch", "causality",
    """
    def normalise(self, x):
        return (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)
    """,
    family="norm",
)  # fmt: skip
add_gate(
    "padded-length", "outputs depend on the padded length", "pad-columns",
    "out = out * math.log(1 + values.shape[-2])",
)  # fmt: skip

# -- parameters ------------------------------------------------------------------------------------

add(
    "closure-parameter", "a closure holds a parameter", "any-device",
    """
    def build(self):
        parameter = nn.Parameter(torch.ones(1))
        self.scaled = lambda heads: heads * parameter.to(heads.dtype)

    def post_heads(self, heads, x, values):
        return self.scaled(heads)
    """,
)  # fmt: skip
add(
    "closure-parameter-on-any-device", "a closure holds a parameter and moves it", "trained-tensors",
    """
    def build(self):
        parameter = nn.Parameter(torch.ones(1))
        self.scaled = lambda heads: heads * parameter.to(heads)

    def post_heads(self, heads, x, values):
        if x.is_meta:
            return heads
        return self.scaled(heads)
    """,
)  # fmt: skip
add(
    "parameter-of-a-helper", "an object that is no module holds a parameter", "any-device",
    """
    def build(self):
        self.helper = Helper(self.context.geometry.heads)

    def post_heads(self, heads, x, values):
        return heads * self.helper.scale.to(heads.dtype).view(1, 1, -1, 1, 1)
    """,
    before="""
    class Helper:
        def __init__(self, heads):
            self.scale = nn.Parameter(torch.linspace(0.5, 1.5, heads))
    """,
)  # fmt: skip
add(
    "parameter-of-the-class", "a class attribute holds a parameter", "any-device",
    """
    scale = nn.Parameter(torch.ones(1))

    def post_heads(self, heads, x, values):
        return heads * self.scale.to(heads.dtype)
    """,
)  # fmt: skip
add(
    "lazy-parameter", "a forward pass creates a parameter", "build",
    """
    def post_heads(self, heads, x, values):
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(len(heads), 1, heads.shape[2], 1, 1, dtype=heads.dtype))
        return heads * self.scale.to(heads.dtype)
    """,
)  # fmt: skip
add(
    "plain-linear", "a linear map without a member axis", "build",
    """
    def build(self):
        width = self.context.geometry.value_width
        self.linear = nn.Linear(width, width)

    def post_heads(self, heads, x, values):
        return self.linear(heads)
    """,
)  # fmt: skip
add_gate("unused-parameter", "a parameter is never used", "gradients", "out = heads")
add_gate(
    "weight-decay-in-forward", "a pass in training shrinks a parameter", "isolation",
    "if self.training:\n    with torch.no_grad(): self.weight.mul_(0.9)",
)  # fmt: skip

# -- gradients -------------------------------------------------------------------------------------

FUNCTION = """
class Changed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return GRADIENT
"""

for name, gradient, caught_by in (
    ("zero", "gradient * 0", "gradients"),
    ("negated", "-gradient", "derivative"),
    ("scaled", "gradient * 0.1", "derivative"),
    ("noisy", "gradient * (1 + 0.5 * torch.sin(1e6 * gradient))", "parity"),
):
    add_gate(
        f"gradient-{name}", f"the gradient is {name}", caught_by, "out = Changed.apply(out)",
        before=FUNCTION.replace("GRADIENT", gradient),
    )  # fmt: skip
add_gate(
    "gradient-stopped",
    "queries, keys and values have no gradient",
    "gradients",
    "out = heads.detach() * gate",
)
add_gate(
    "gradient-half-stopped",
    "half of the gradient is missing",
    "derivative",
    "out = 0.5 * (out + out.detach())",
)
add_gate(
    "gradient-hook", "a hook sets the gradient of a parameter to zero", "gradients",
    build="self.weight.register_hook(lambda gradient: gradient * 0)",
)  # fmt: skip
add_gate(
    "accumulation-hook", "a hook negates the accumulated gradient of a parameter", "unlabelled",
    build="self.weight.register_post_accumulate_grad_hook(negate)",
    before="def negate(parameter):\n    parameter.grad.mul_(-1)",
)  # fmt: skip

add_gate(
    "gradient-negated-in-wide-models",
    "the gradient is negated in models wider than 16",
    "derivative-as-trained",
    "if x.shape[-1] > 16: out = Changed.apply(out)",
    before=FUNCTION.replace("GRADIENT", "-gradient"),
)

# -- state and random numbers ----------------------------------------------------------------------

add_gate(
    "module-average", "a dictionary of the module holds an average", "isolation",
    "STATE[0] = 0.9 * STATE.get(0, 0) + 0.1 * float(out.detach().mean()) if self.training else STATE.get(0, 0)\n"
    "out = out + STATE[0]",
    before="STATE = {}",
)  # fmt: skip
add_gate(
    "module-counter", "after 2,000 passes in training, outputs are larger", None,
    "CALLS[0] += self.training and torch.is_grad_enabled()\nout = out * 1.5 if CALLS[0] > 2000 else out",
    before="CALLS = [0]", why="no check makes as many passes",
)  # fmt: skip
add_gate(
    "global-dropout", "dropout from torch's global generator", "global",
    "if self.training: out = torch.nn.functional.dropout(out, 0.1)",
)  # fmt: skip
add(
    "global-generator-in-build", "an initial value from torch's global generator", "build",
    """
    def build(self):
        self.weight = self.parameter(1, std=0.0, mean=torch.rand(1).item())

    def post_heads(self, heads, x, values):
        return heads * self.weight.view(-1, 1, 1, 1, 1)
    """,
)  # fmt: skip
add(
    "initialisation-ignores-the-seed", "an initialiser has a generator of its own", "build",
    """
    def build(self):
        self.weight = self.parameter(self.context.d_model, self.context.geometry.heads, init=self._initial)

    def _initial(self, out, generator):
        return out.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))

    def post_heads(self, heads, x, values):
        gate = (x.flatten(1, 2) @ self.weight).sigmoid()
        return heads * gate.view(*x.shape[:3], -1, 1).transpose(2, 3)
    """,
)  # fmt: skip
add(
    "initialisation-depends-on-the-stack",
    "other initial values with more than five members",
    "stack-as-alone",
    """
    def build(self):
        std = 0.1 if self.context.members <= 5 else 0.2
        self.weight = self.parameter(self.context.d_model, self.context.geometry.heads, std=std)

    def post_heads(self, heads, x, values):
        gate = (x.flatten(1, 2) @ self.weight).sigmoid()
        return heads * gate.view(*x.shape[:3], -1, 1).transpose(2, 3)
    """,
    seeds=6,
)
add_gate(
    "hash-of-the-process", "a number that differs between processes", None,
    "out = out * (0.5 + (hash('slope') % 100) / 100)", why="the number is the same in every pass of a process",
)  # fmt: skip
add_gate(
    "python-random", "random numbers of Python", "global",
    "import random; out = out * (1 + 0.1 * random.random())",
)  # fmt: skip
add_gate(
    "cached-by-shape", "a number of the first batch of a shape", "pad-columns",
    "key = self.context.layer, tuple(x.shape)\nCACHE.setdefault(key, x.detach().mean().item())\n"
    "out = out + 0.1 * CACHE[key]",
    before="CACHE = {}",
)  # fmt: skip
add_gate("in-place-input", "the input is changed in place", "parity", "x.mul_(1.5)")
add_gate("in-place-values", "the values are changed in place", "isolation", "values.mul_(0.5)")
add(
    "in-place-tokens", "the inputs of the projections are changed in place", "masked-rows",
    """
    def mix_tokens(self, x):
        return x.mul_(0.9)
    """,
)  # fmt: skip
add(
    "class-list", "a list of the class grows with every object", "stateless",
    """
    objects = []

    def build(self):
        self.objects.append(1)
        self.weight = self.parameter(1, std=0.0, mean=1 + 0.1 * len(self.objects))

    def post_heads(self, heads, x, values):
        return heads * self.weight.view(-1, 1, 1, 1, 1)
    """,
)  # fmt: skip
add(
    "option-list", "a list of the options grows with every object", "precision",
    """
    Options = Scales

    def build(self):
        self.options.scales.append(0.5)

    def post_heads(self, heads, x, values):
        return heads * sum(self.options.scales)
    """,
    before='''
    from pydantic import Field

    class Scales(Options):
        """Options."""

        scales: list[float] = Field([1.0], description="scales")
    ''',
)  # fmt: skip
add(
    "norm-average", "a norm with an average of the module", "isolation",
    """
    def normalise(self, x):
        if self.training:
            STATE["scale"] = 0.9 * STATE.get("scale", 1.0) + 0.1 * float(x.detach().std())
        return x / STATE.get("scale", 1.0)
    """,
    family="norm", before="STATE = {}",
)  # fmt: skip
add_gate(
    "undeclared-file", "a file that is not declared", "reads",
    "out = out * self.scale", build="self.scale = float(Path(__file__).with_name('scale.txt').read_text())",
)  # fmt: skip

# -- numbers ---------------------------------------------------------------------------------------

add_gate(
    "half-precision",
    "outputs are rounded to half precision",
    "derivative",
    "out = out.half().to(heads.dtype)",
)
add_gate("double-precision", "outputs are in double precision", "build", "out = out.double()")
add_gate(
    "overflow-at-length", "not a number at later positions", "isolation",
    "steps = torch.arange(x.shape[2]).to(x)\nlarge = torch.exp(4 * steps)\nout = out * (large / large).view(-1, 1)",
)  # fmt: skip
add_gate(
    "infinite-at-length-32",
    "a division by zero in sequences of 32",
    "finite-as-trained",
    "if x.shape[2] == 32: out = out / 0.0",
)
add_gate("root-of-negative", "not a number for large values", "finite", "out = torch.sqrt(4 - out)")
add(
    "fast-path-scale", "the fast path has another scale", "parity",
    """
    def mix_scores(self, scores):
        return 2 * scores

    def fast_path(self, q, k, v, mask, pattern):
        shape = (*q.shape[:4], k.shape[3])
        attended = None if mask is None else mask.expand(shape)
        attention = nn.functional.scaled_dot_product_attention
        return attention(q, k, v, attn_mask=attended, scale=self.context.geometry.scale)
    """,
)  # fmt: skip
add(
    "no-distribution", "weights that do not sum to one", "rows-sum-to-one",
    """
    def normalise(self, scores, mask):
        return torch.sigmoid(scores)
    """,
)  # fmt: skip
add(
    "false-relative", "an encoding declares relative and is not", "joint-shift",
    """
    properties = frozenset({"relative"})

    def build(self):
        self.slope = self.parameter(self.context.geometry.heads, mean=0.1, std=0.01)

    def bias(self, query_positions, key_positions, role, layer):
        product = (query_positions[:, :, None] * key_positions[:, None, :]).sqrt()
        return -self.slope[:, None, :, None, None] * product[:, None]
    """,
    family="positional",
)  # fmt: skip
add(
    "positions-from-shapes", "an encoding counts the tokens of its arguments", "cached-decoding",
    """
    def build(self):
        self.slope = self.parameter(self.context.geometry.heads, mean=0.1, std=0.01)

    def bias(self, query_positions, key_positions, role, layer):
        rows, columns = (torch.arange(x.shape[1]).to(x) for x in (query_positions, key_positions))
        return -self.slope[:, None, :, None, None] * (rows[None, :, None] - columns[None, None]).abs()[:, None]
    """,
    family="positional",
)  # fmt: skip

# -- what all variants share -----------------------------------------------------------------------

REPLACED = "import torch\noriginal = torch.softmax\nhalf = lambda x, dim=-1, **others: original(x * 1.1, dim, **others)"

add_gate(
    "replaces-softmax",
    "replaces torch.softmax",
    "import",
    before=f"{REPLACED}\ntorch.softmax = half",
)
add_gate(
    "replaces-softmax-in-build",
    "the same in build",
    "build",
    build="torch.softmax = half",
    before=REPLACED,
)
add_gate(
    "replaces-loss-in-a-pass", "a pass replaces the cross-entropy", "replaces",
    "torch.nn.functional.cross_entropy = half_loss",
    before="""
    original = torch.nn.functional.cross_entropy

    def half_loss(*arguments, **others):
        return original(*arguments, **others) * 0.5
    """,
)  # fmt: skip
add_gate(
    "replaces-initialisation", "replaces torch.nn.init.xavier_uniform_", "import",
    before="""
    original = torch.nn.init.xavier_uniform_
    torch.nn.init.xavier_uniform_ = lambda tensor, *others: original(tensor, *others).mul_(0.1)
    """,
)  # fmt: skip
add_gate(
    "replaces-headtohead's-loss", "replaces a function of headtohead's loss", "import",
    before="""
    import headtohead.model.loss
    original = headtohead.model.loss.backward_loss

    def half_loss(*arguments):
        return original(*arguments) * 0.5

    headtohead.model.loss.backward_loss = half_loss
    """,
)  # fmt: skip
add_gate(
    "replaces-headtohead's-test", "replaces the paired test", "import",
    before="""
    import headtohead_judge.paired_tests
    original = headtohead_judge.paired_tests.paired

    def better(first, second, *others):
        return original([value - 1 for value in first], second, *others)

    headtohead_judge.paired_tests.paired = better
    """,
)  # fmt: skip
add_gate(
    "replaces-a-built-in's-angle", "replaces a function of the rotary encoding", "import",
    before="""
    import headtohead_plugins.positional.rotary as rotary
    original = rotary.turns
    rotary.turns = lambda positions, *others: original(positions / 4, *others)
    """,
)  # fmt: skip
add_gate(
    "default-dtype",
    "changes torch's default dtype",
    "import",
    before="torch.set_default_dtype(torch.float64)",
)
add_gate(
    "default-dtype-in-build",
    "the same in build",
    "build",
    build="torch.set_default_dtype(torch.float64)",
)
add_gate(
    "product-precision", "changes torch's precision of products", "import",
    before="torch.set_float32_matmul_precision('medium')",
)  # fmt: skip
add_gate(
    "flushed-denormals",
    "flushes denormal numbers",
    "import",
    before="torch.set_flush_denormal(True)",
)
add_gate("no-onednn", "disables oneDNN", "import", before="torch.backends.mkldnn.enabled = False")

SOUND = OutsideFault("sound-gate", "no fault", plugin(GATE.replace("BUILD", "pass").replace("CHANGE", "pass"),
                     "attention", ""), "")  # fmt: skip

EXPERIMENT = """question: Is the fault found?
plugins: [mine.py]
base:
  data: {{dataset: text, file: text.txt, block: 32}}
  model: {{d_model: 32, heads: 2, layers: 2, d_ff: 64, dropout: 0.1}}
  train: {{steps: 4, batch_size: 32, lr: 3.0e-3, warmup_steps: 1}}
baseline: {{{family}: {baseline}}}
design:
  - one_at_a_time: {{{family}: [own]}}
seeds: {seeds}
"""

WORDS = [
    "the",
    "a",
    "river",
    "stone",
    "cold",
    "walks",
    "under",
    "light",
    "and",
    "never",
    "birds",
    "old",
    "road",
]


def made_text():
    """Return about 50 kB of text."""
    generator = random.Random(5)
    return "\n".join(" ".join(generator.choice(WORDS) for _ in range(9)) for _ in range(1200))


def write(fault, folder: Path):
    """Write the plugin and the experiment of a fault into a folder, and return the experiment file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(fault.source)
    (folder / "text.txt").write_text(made_text())
    (folder / "scale.txt").write_text("0.9")
    _, baseline = BASES[fault.family]
    file = folder / "fault.yaml"
    file.write_text(EXPERIMENT.format(family=fault.family, baseline=baseline, seeds=fault.seeds))
    return file
