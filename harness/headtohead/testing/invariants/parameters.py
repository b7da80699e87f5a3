"""The number of weights is what the formulas say."""

from __future__ import annotations

from headtohead.model.attention import MultiHeadAttention
from headtohead.plugins.positional import BuildContext
from headtohead.plugins.registry import current
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within


@invariant("parameter-count")
def parameter_count_equals_the_closed_form(subject: Subject) -> Verdict:
    """The model has as many weights as its closed form says."""
    built = sum(parameter[0].numel() for parameter in subject.model.parameters())
    return within(float(abs(built - closed_form(subject))), f"weights too many or too few among {built}", 0.0)


def closed_form(subject: Subject) -> int:
    """Return the number of weights of one member by formula."""
    config, quirks = subject.config.model, subject.config.quirks
    width, bias = config.d_model, config.bias
    rows = subject.model.rows

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + (outputs if bias else 0)

    encoder_layers, decoder_layers = config.encoder_layers, config.decoder_layers
    per_layer = {role: _attention(subject, role) for role in ROLES}
    total = encoder_layers * per_layer["encoder"]
    total += decoder_layers * (per_layer["decoder"] + per_layer["cross"])
    forwards = 2 if quirks.decoder_feed_forward == "after-each" else 1
    places = encoder_layers + decoder_layers * forwards
    one = linear(width, config.d_ff) + linear(config.d_ff, width)
    total += one * (1 if "feed-forward" in quirks.shared_modules else places)
    places += encoder_layers + 2 * decoder_layers + (2 if config.final_norm else 0)
    total += 2 * width * (1 if "norm" in quirks.shared_modules else places)
    total += sum(_positional(subject, role) for role in ROLES)
    total += rows.target * width
    total += rows.source * width if config.tie_embeddings in ("none", "output") else 0
    return total + (linear(width, rows.target) if config.tie_embeddings in ("none", "embeddings") else 0)


def _attention(subject: Subject, role: str) -> int:
    attention: MultiHeadAttention = subject.attention(role)
    model = subject.config.model
    projections = attention.context.geometry.parameters(model.d_model, model.bias)
    if not attention.style.projects:
        projections = 0
    return projections + type(attention.style).parameter_count(attention.style.options, attention.context)


def _positional(subject: Subject, role: str) -> int:
    entry = current().positional(subject.config.positional.role(role).name)
    part = subject.positional(role)
    context: BuildContext = part.context
    return entry.parameter_count(part.options, context)
