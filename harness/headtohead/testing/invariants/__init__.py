"""All invariants, one topic per file."""

from __future__ import annotations

from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import (
    acting_positions,
    arithmetic,
    attention_weights,
    decoding,
    gradients,
    masks,
    model_state,
    order,
    padding,
    parameters,
    parity,
    sampled_positions,
    tokens,
    trained_stacks,
)

INVARIANTS: tuple[Invariant, ...] = (
    masks.masks_have_their_declared_properties,
    masks.masks_equal_their_definition,
    masks.masks_are_the_same_step_by_step,
    masks.every_layer_uses_the_mask_of_its_role,
    tokens.future_tokens_never_change_earlier_logits,
    padding.more_padding_changes_no_logits,
    padding.padding_ids_change_no_logits,
    padding.a_batch_equals_its_sentences_alone,
    order.source_order_changes_logits_unless_the_variant_is_order_invariant,
    order.source_reversal_changes_logits_unless_the_encoding_is_symmetric,
    acting_positions.positions_act_in_every_role,
    attention_weights.queries_depend_on_exactly_the_visible_keys,
    acting_positions.a_joint_shift_changes_nothing,
    acting_positions.weights_fall_strictly_with_distance,
    acting_positions.positions_differ_up_to_the_limit_and_raise_beyond,
    attention_weights.scores_of_random_heads_have_variance_one,
    parity.fused_path_equals_explicit_path,
    attention_weights.fully_masked_rows_are_predictable,
    attention_weights.a_masked_key_has_no_weight,
    attention_weights.rows_of_weights_sum_to_one,
    attention_weights.weights_times_values_are_the_output,
    decoding.cached_decoding_equals_teacher_forcing,
    decoding.greedy_decoding_equals_a_plain_loop,
    parameters.parameter_count_equals_the_closed_form,
    arithmetic.smoothed_loss_equals_torch_cross_entropy,
    tokens.every_source_token_changes_the_logits,
    tokens.every_target_token_changes_the_logits_of_its_queries,
    gradients.gradient_reaches_every_parameter,
    arithmetic.gradients_equal_finite_differences,
    arithmetic.nothing_is_computed_in_single_precision,
    arithmetic.every_precision_and_the_meta_device_work,
    arithmetic.numbers_stay_finite,
    arithmetic.dropout_acts_in_training_only,
    model_state.a_pass_has_no_side_effects,
    model_state.a_checkpoint_holds_the_whole_model,
    model_state.members_compute_the_same_alone,
    sampled_positions.sampled_positions_rise_and_belong_to_their_member,
    model_state.a_seed_determines_the_model,
    trained_stacks.a_member_trains_as_it_would_alone,
    trained_stacks.a_resumed_training_equals_an_uninterrupted_one,
)

TRAINING = frozenset({"stacking", "resume"})
"""Names of invariants that train stacks; they cost as much as all others together."""

PER_ENTRY = TRAINING | {
    "determinism",
    "derivative",
    "precision",
    "any-device",
    "finite",
    "evaluation",
    "stateless",
    "checkpoint",
    "members",
    "sampled-positions",
    "loss",
    "limit",
    "temperature",
}
"""Names of invariants whose verdict on an entry does not depend on the entries of other families."""
