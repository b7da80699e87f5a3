"""The number of parameters equals the closed form of model and entries."""

from __future__ import annotations

from headtohead.model.attention import MultiHeadAttention
from headtohead.plugins.component import BuildContext
from headtohead.plugins.registry import current
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within


@invariant("parameter-count")
def parameter_count_equals_the_closed_form(subject: Subject) -> Verdict:
    """The number of parameters of a member equals its closed form."""
    built = sum(parameter[0].numel() for parameter in subject.model.parameters())
    difference = abs(built - closed_form(subject))
    return within(float(difference), f"difference between the closed form and {built} parameters", 0.0)


def closed_form(subject: Subject) -> int:
    """Return the number of parameters of a member by formula."""
    config, quirks = subject.config.model, subject.config.quirks
    width, vocab_sizes = config.d_model, subject.model.vocab_sizes

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + (outputs if config.bias else 0)

    encoder_layers, decoder_layers = config.encoder_layers, config.decoder_layers
    per_layer = {role: _attention(subject, role) for role in subject.roles}
    total = encoder_layers * per_layer["encoder"]
    total += decoder_layers * (per_layer["decoder"] + per_layer["cross"])
    per_decoder_layer = 2 if quirks.decoder_feed_forward == "after-each" else 1
    feed_forwards = encoder_layers + decoder_layers * per_decoder_layer
    feed_forward = linear(width, config.d_ff) + linear(config.d_ff, width)
    total += feed_forward * (1 if "feed-forward" in quirks.shared_modules else feed_forwards)
    norms = feed_forwards + encoder_layers + 2 * decoder_layers + (2 if config.final_norm else 0)
    total += 2 * width * (1 if "norm" in quirks.shared_modules else norms)
    total += sum(_positional(subject, role) for role in subject.roles)
    total += vocab_sizes.target * width
    total += vocab_sizes.source * width if config.tie_embeddings in ("none", "output") else 0
    return total + (linear(width, vocab_sizes.target) if config.tie_embeddings in ("none", "embeddings") else 0)


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
