"""Findings: sentences that qualify the answer of a study, each from a named rule; `rules.RULES` lists all rules."""
