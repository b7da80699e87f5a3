"""The number of weights is what the formulas say."""

from __future__ import annotations

from headtohead import plugins
from headtohead.families.entry import ROLES
from headtohead.families.positional import BuildContext
from headtohead.model.attention import MultiHeadAttention
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, within


@invariant("parameter-count")
def parameter_count_equals_the_closed_form(subject: Subject) -> Verdict:
    """The model has as many weights as its closed form says."""
    built = sum(parameter[0].numel() for parameter in subject.model.parameters())
    return within(
        float(abs(built - closed_form(subject))), f"weights too many or too few among {built}", 0.0
    )


def closed_form(subject: Subject) -> int:
    """Return the number of weights of one member by formula."""
    config, sizes = subject.config.model, subject.model.sizes
    width, bias = config.d_model, config.bias
    source_words, target_words = subject.words

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + (outputs if bias else 0)

    norm = 2 * width
    feed_forward = linear(width, config.d_ff) + linear(config.d_ff, width) + norm
    per_layer = {role: _attention(subject, role) + norm for role in ROLES}
    total = sizes.encoder_layers * (per_layer["encoder"] + feed_forward)
    total += sizes.decoder_layers * (per_layer["decoder"] + per_layer["cross"] + feed_forward)
    total += sum(_positional(subject, role) for role in ROLES)
    total += target_words * width + (0 if config.tied == "all" else source_words * width)
    total += linear(width, target_words) if config.tied == "none" else 0
    return total + (2 * norm if sizes.final_norm else 0)


def _attention(subject: Subject, role: str) -> int:
    attention: MultiHeadAttention = subject.attention(role)
    model = subject.config.model
    projections = attention.context.geometry.parameters(model.d_model, model.bias)
    return projections + type(attention.style).parameter_count(
        attention.style.options, attention.context
    )


def _positional(subject: Subject, role: str) -> int:
    entry = plugins.current().positional(subject.config.positional.role(role).name)
    part = subject.positional(role)
    context: BuildContext = part.context
    return entry.parameter_count(part.options, context)
