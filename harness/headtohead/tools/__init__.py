"""Tools beside the comparison of variants: catalogue, trace, notebooks, pitfalls, head ablation, plugin template."""
