"""Catalogue, trace, notebooks and their pitfalls, head ablation, and the plugin template."""
