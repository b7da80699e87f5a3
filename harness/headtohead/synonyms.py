"""Names of other tools and papers, and the names here: the table that `headtohead.errors` reads for suggestions."""

from __future__ import annotations

_OTHER_NAMES = {
    # Sections and fields of an experiment file
    "design": "ablation ablations axes compare grid search_space sweep variants",
    "product": "cartesian combinations factorial full_factorial grid",
    "train": "optimization trainer training training_args training_arguments",
    "seeds": "n_seeds num_seeds random_seed repeats replicates seed",
    "tune": "hparams hyperparameters tuning",
    "positional": "pe pos_emb pos_embed pos_enc pos_encoding position_embedding position_embedding_type "
    "position_encoding positional_embedding positional_encoding",
    "attention": "attention_type attn attn_type self_attention",
    "masking": "attention_mask attn_mask mask masks",
    "feed_forward": "act act_fn activation activation_fn activation_function feedforward ff ffn hidden_act "
    "mlp mlp_type",
    # data
    "data.dataset": "corpus data.name dataset_name task",
    "data.file": "data_file data_files path train_file",
    "data.columns": "column source source_column source_lang src src_lang target target_column target_lang "
    "tgt tgt_lang",
    "data.languages": "langs language lang",
    "data.limit": "max_samples max_train_samples n_samples num_samples subset",
    "data.valid": "val val_size valid_size validation validation_split",
    "data.test": "test_size test_split",
    "data.tokens": "tokenization tokenizer",
    "data.normalise": "lowercase normalization normalize",
    "data.block": "block_size data.context_length data.max_seq_len data.seq_len data.sequence_length",
    "data.truncate_tokens": "context_length data.max_length max_len max_position_embeddings max_seq_len "
    "max_seq_length max_source_length max_source_positions max_target_length seq_len seq_length",
    "data.vocabulary.file": "tokenizer_file tokenizer_name",
    "data.vocabulary.max_size": "n_vocab num_tokens vocab vocab_size vocabulary_size",
    "data.vocabulary.min_count": "min_freq min_frequency",
    # model
    "model.architecture": "architectures causal_lm decoder_only gpt is_decoder is_encoder_decoder model_type",
    "model.d_model": "d_embed dim emb_dim embed_dim embedding_dim encoder_embed_dim hidden_dim hidden_size model_dim "
    "n_embd width",
    "model.heads": "attention_heads enc_heads encoder_attention_heads n_head n_heads nhead num_attention_heads "
    "num_head num_heads",
    "model.layers": "depth n_layer n_layers num_blocks num_hidden_layers num_layers",
    "model.encoder_layers": "enc_depth num_encoder_layers",
    "model.decoder_layers": "dec_depth num_decoder_layers",
    "model.d_ff": "d_ffn d_hid d_inner dff dim_feedforward encoder_ffn_dim encoder_ffn_embed_dim ff_dim ffn_dim "
    "ffn_embed_dim intermediate_size mlp_dim n_inner",
    "model.norm": "encoder_normalize_before norm_first norm_position normalize_before pre_norm",
    "model.norm_eps": "layer_norm_eps layer_norm_epsilon rms_norm_eps",
    "model.bias": "attention_bias mlp_bias use_bias",
    "model.tie_embeddings": "share_all_embeddings share_decoder_input_output_embed share_embeddings tie_weights "
    "tie_word_embeddings weight_tying",
    "model.init": "init_method initialization initializer weight_init",
    "model.logit_softcap": "final_logit_softcap final_logit_softcapping logit_cap logits_soft_cap softcap",
    "model.dropout": "drop dropout_p dropout_prob dropout_rate",
    "model.dropout_attention": "attention_dropout attention_probs_dropout_prob attn_dropout attn_pdrop",
    "model.dropout_embedding": "emb_dropout embd_pdrop embed_dropout embedding_dropout",
    "model.dropout_ffn": "activation_dropout ff_dropout ffn_dropout relu_dropout",
    "model.dropout_residual": "hidden_dropout hidden_dropout_prob resid_pdrop residual_dropout",
    # train
    "train.epochs": "max_epoch max_epochs n_epochs num_epochs num_train_epochs",
    "train.steps": "iterations iters max_iters max_steps max_update max_updates n_steps num_steps num_train_steps "
    "train_steps training_steps updates",
    "train.batch_tokens": "max_tokens tokens_per_batch",
    "train.tokens": "max_train_tokens num_train_tokens token_budget total_tokens training_tokens",
    "train.batch_size": "bs per_device_train_batch_size train_batch_size",
    "train.lr": "base_lr learning_rate max_lr peak_lr",
    "train.schedule": "lr_schedule lr_scheduler lr_scheduler_type scheduler",
    "train.decay_fraction": "cooldown_frac cooldown_fraction decay_frac warmdown_frac warmdown_ratio",
    "train.final_lr": "eta_min lr_min min_lr",
    "train.z_loss": "router_z_loss z_loss_coef z_loss_coefficient z_loss_weight zloss",
    "train.warmup_steps": "n_warmup num_warmup_steps warm_up warmup warmup_iters warmup_ratio warmup_updates",
    "train.optimizer": "optim optimiser",
    "train.betas": "adam_beta1 adam_beta2 adam_betas beta1 beta2",
    "train.eps": "adam_eps adam_epsilon epsilon",
    "train.weight_decay": "wd",
    "train.label_smoothing": "label_smoothing_factor smoothing",
    "train.clip_norm": "clip_grad clip_grad_norm grad_clip grad_norm gradient_clip gradient_clip_val "
    "gradient_clipping max_grad_norm",
    "train.early_stopping.patience": "early_stopping_patience patience",
    "train.evaluate_every": "eval_every eval_interval eval_steps val_check_interval valid_every validate_every "
    "validate_interval_updates",
    "train.checkpoint_seconds": "checkpoint_every checkpoint_interval save_every save_interval save_steps",
    "train.precision": "amp bf16 dtype fp16 mixed_precision torch_dtype",
    "train.backend": "compile torch_compile",
    # evaluate
    "evaluate.batch_size": "eval_batch_size per_device_eval_batch_size",
    "evaluate.beam.size": "beam_size num_beams",
    "evaluate.beam.length_penalty": "lenpen length_penalty",
    "evaluate.max_length": "generation_max_length max_decode_length max_new_tokens",
    # Options of components, and values
    "theta": "base rope_base rope_theta rotary_base",
    "bfloat16": "bf16 bf16_mixed bf16_true",
    "float32": "32 32_true fp32 full",
    "decoder-only": "causal causal_lm decoder gpt gpt2 language_model llama lm",
    "encoder-decoder": "seq2seq t5 transformer",
    "pre": "pre_layernorm pre_ln pre_norm prenorm",
    "wsd": "trapezoid trapezoidal warmup_stable_decay",
    "inverse-sqrt": "inv_sqrt invsqrt noam rsqrt",
    "beam": "beam_search",
    "subword": "bpe sentencepiece spm subwords unigram wordpiece",
    # Metrics
    "test/exact_match": "acc em exact exact_match",
    "test/token_accuracy": "accuracy",
    "test/bleu": "bleu sacrebleu",
    "test/chrf": "chrf",
    "valid/loss": "eval_loss loss val_loss valid_loss validation_loss",
    "valid/perplexity": "perplexity ppl",
    # Components
    "layernorm": "layer_norm ln",
    "rmsnorm": "llama_rms_norm rms rms_norm",
    "relu2": "relu_squared relu_sq squared_relu",
    "swiglu": "silu silu_glu swish swish_glu",
    "geglu": "gelu_glu",
    "rotary": "ro_former roformer rope rotary_embedding rotary_position_embedding",
    "sinusoidal": "absolute fixed sin sincos sine sinusoid standard vanilla",
    "learned": "embedding learnable learned_absolute learned_embedding trainable trained",
    "none": "identity no no_pe no_pos nope null off",
    "shaw-relative": "relative relative_position rpr shaw",
    "t5-relative": "relative_bias t5 t5_bias",
    "split-heads": "mha multi_head multi_head_attention multihead scaled_dot_product sdpa softmax standard vanilla",
    "grouped-query": "gqa grouped grouped_query_attention",
    "multi-query": "mqa multi_query_attention",
    "multi-head-latent": "latent latent_attention mla multi_head_latent_attention",
    "gated-delta": "delta_rule deltanet gated_delta_net gated_delta_rule gated_deltanet gdn",
    "linear": "linear_attention linear_transformer performer",
    "differential": "diff diff_attention diff_transformer",
    "qk-norm": "qk_layernorm qknorm query_key_norm",
    "gated": "attention_gate attn_output_gate gated_attention output_gate",
    "exclusive": "exclusive_self_attention xsa",
    "value-embedding": "token_value_embedding value_embed value_embeddings value_embeds",
    "value-residual": "res_former resformer v_residual",
    "soft-cap": "attn_logit_softcapping score_cap softcap softcapping",
    "sinks": "attention_sink attention_sinks off_by_one sink softmax1",
    "short-convolution": "canon canon_a causal_conv1d conv short_conv",
    "smear": "smear_gate smeared token_smearing token_shift",
    "forgetting": "forget_gate forgetting_attention forgetting_transformer fox",
    "rotary-scaled": "ntk pi position_interpolation rope_scaling yarn",
    "padding-causal": "autoregressive causal_padding standard vanilla",
    "window": "band local local_attention sliding sliding_window swa",
    "pairs": "csv file hf huggingface iwslt json jsonl multi30k opus own tsv wmt wmt14 wmt16",
    "text": "char character_level enwik8 language_modeling lm openwebtext plain_text shakespeare shakespeare_char "
    "tiny_shakespeare tinyshakespeare txt wikitext",
    # Commands and options
    "run": "fit launch start train",
    "plan": "dry_run explain preview validate",
    "list": "experiments ls runs",
    "report": "eval evaluate results summarize",
    "clean": "delete gc prune remove rm",
    "check": "lint test verify",
    "ui": "dashboard mlflow",
    "ablate-heads": "ablate ablation prune_heads",
    "generate": "decode translate infer predict sample",
    "judge": "compare significance ttest",
    "--workers": "jobs n_jobs num_workers parallel processes",
    "--seeds": "n_seeds num_seeds seed",
    "--fresh": "force overwrite restart",
    "--only": "variant variants",
    "--reports": "out out_dir output output_dir",
}
"""Names here, with names of other tools, which spaces separate. A field has its section before it."""

_REASONS = {
    "type norm: NAME; h2h plugins norm lists them; model.norm is their position: pre, post or sandwich": "batchnorm "
    "layer_norm_type layernorm norm_layer norm_type normalization_layer rms rms_norm rmsnorm scalenorm use_rmsnorm",
    "type feed_forward: NAME; h2h plugins feed_forward lists them": "ff_glu ff_swish geglu gelu glu relu relu2 swiglu "
    "use_swiglu",
    "type positional: {name: rotary, theta: N}": "rope rope_base rope_theta rotary rotary_base use_rope",
    "headtohead chooses the attention kernel; h2h plan prints it in the column path": "attn_flash "
    "attn_implementation flash flash_attention flash_attention_2 flash_attn use_flash_attention use_sdpa",
    "heads have the width model.d_model / model.heads; h2h plugins lists attention styles with others": "d_head "
    "d_k d_v dim_head head_dim head_size kv_channels",
    "type attention: {name: grouped-query, kv_heads: N}": "attn_kv_heads kv_heads n_kv_heads num_key_value_heads "
    "num_kv_heads",
    "float16 does not exist here": "16_mixed float16 fp16 half",
    "mixtures of experts do not exist here": "experts moe n_experts num_experts num_experts_per_tok num_local_experts",
    "one file holds the experiment: base has the shared settings, design what is compared, tune what is selected": ""
    "defaults hydra sweeper",
    "a list is a pattern of layers: masking.decoder: [window, causal]": "attn_layer_pattern layer_pattern layer_types "
    "no_rope_layers sliding_window_pattern",
    "columns are separated by commas in .csv files, by tabs in .tsv files": "delimiter sep separator",
    "merge keys do not exist; repeat the fields": "<<",
    "train.num_microbatches: N computes a batch in N parts; the batch size stays": "accumulate_grad_batches grad_accum "
    "gradient_accumulation gradient_accumulation_steps update_freq",
    "seeds: 6 trains six seeds, and seeds: [42] trains seed 42": "manual_seed random_seed rng_seed seed",
    "the file is an argument: h2h run FILE": "config config_file config_name config_path",
    "h2h -v prints a log; h2h run --launcher inline trains in one process, for debuggers": "debug pdb verbose",
    "type h2h --help": "help",
    "the device is an option of h2h run: --device cuda or --device cpu": "accelerator cpu cuda device devices gpu "
    "gpus n_gpus no_cuda num_gpus use_cuda",
    "loggers are an option of h2h run: --logger wandb": "log_wandb logger loggers report_to tensorboard use_wandb "
    "wandb wandb_project",
    "folders are options of h2h run: --runs FOLDER and --reports FOLDER": "checkpoint_dir default_root_dir log_dir "
    "logging_dir out_dir output_dir save_dir",
    "the same command resumes": "continue resume resume_from resume_from_checkpoint",
}
"""Hints, with names of other tools for something that has no single name here, or does not exist."""


def _key(name: str) -> str:
    """Return a name without case, hyphens, underscores and spaces."""
    return "".join(character for character in name.lower() if character not in "-_ ")


def _inverted(table: dict[str, str]) -> dict[str, list[str]]:
    by_other: dict[str, list[str]] = {}
    for ours, others in table.items():
        for other in others.split():
            by_other.setdefault(_key(other), []).append(ours)
    return by_other


_SYNONYMS = _inverted(_OTHER_NAMES)
_HINTS = {other: hints[0] for other, hints in _inverted(_REASONS).items()}


def synonyms(name: str) -> list[str]:
    """Return the names here for a name of another tool."""
    return _SYNONYMS.get(_key(name), [])


def hint(name: str) -> str:
    """Return what to type instead of a name that no single name here replaces, or an empty text."""
    return _HINTS.get(_key(name), "")
