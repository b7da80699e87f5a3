"""The batched Transformer: layers, attention, decoding, parameter and FLOP counts."""
