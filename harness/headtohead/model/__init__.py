"""The stacked encoder-decoder: layers, attention, decoding, counting."""
