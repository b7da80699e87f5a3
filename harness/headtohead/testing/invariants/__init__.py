"""Every invariant, one idea per file."""

from __future__ import annotations

from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import (
    causality,
    decoding,
    derivative,
    determinism,
    distance,
    drawn,
    evaluation,
    finite,
    gradients,
    limit,
    loss,
    masked_rows,
    masks,
    order,
    padding,
    parameters,
    parity,
    places,
    precision,
    reads,
    resume,
    saved,
    shift,
    source,
    stacking,
    state,
    target,
    temperature,
    weights,
)

INVARIANTS: tuple[Invariant, ...] = (
    masks.a_mask_does_what_it_promises,
    masks.a_mask_is_what_its_definition_says,
    masks.a_mask_is_the_same_step_by_step,
    masks.every_layer_masks_as_its_role_says,
    causality.future_tokens_never_reach_earlier_logits,
    padding.more_padding_changes_nothing,
    padding.what_stands_in_padding_is_never_read,
    padding.a_batch_equals_its_sentences_alone,
    order.order_of_the_source_is_heard_unless_nothing_tells_it,
    order.mirror_image_of_the_source_is_heard_unless_encoding_is_symmetric,
    places.places_act_in_every_role,
    reads.what_is_shown_is_read_and_what_is_hidden_is_not,
    shift.a_joint_shift_changes_nothing,
    distance.weights_fall_strictly_with_distance,
    limit.places_differ_up_to_the_limit_and_end_there,
    temperature.scores_of_random_heads_have_variance_one,
    parity.fused_path_equals_explicit_path,
    masked_rows.fully_masked_rows_are_predictable,
    masked_rows.a_masked_key_has_no_weight,
    weights.rows_of_weights_sum_to_one,
    weights.weights_times_values_are_the_output,
    decoding.cached_decoding_equals_teacher_forcing,
    decoding.greedy_decoding_equals_a_plain_loop,
    parameters.parameter_count_equals_the_closed_form,
    loss.smoothed_loss_equals_the_frameworks,
    source.every_source_word_reaches_the_logits,
    target.every_target_token_reaches_the_logits_it_is_shown_to,
    gradients.gradient_reaches_every_parameter,
    derivative.gradients_are_the_derivative,
    precision.nothing_is_computed_in_single_precision,
    precision.it_runs_in_every_precision_and_as_shapes,
    finite.numbers_stay_finite,
    evaluation.dropout_acts_in_training_alone,
    state.asking_leaves_no_trace,
    saved.a_checkpoint_holds_everything,
    saved.a_member_computes_what_it_would_alone,
    drawn.drawn_positions_rise_and_belong_to_their_member,
    determinism.a_seed_decides_everything,
    stacking.a_member_trains_as_it_would_alone,
    resume.a_resumed_training_equals_an_undisturbed_one,
)

TRAINING = frozenset({"stacking", "resume"})
"""Names of invariants that train stacks, and cost as much as all others together."""

OF_ONE_ENTRY = TRAINING | {
    "determinism", "derivative", "precision", "any-device", "finite", "evaluation", "stateless",
    "checkpoint", "members", "drawn-positions", "loss", "limit", "temperature",
}  # fmt: skip
"""Names of invariants that an entry keeps or breaks by itself, whatever stands beside it."""
