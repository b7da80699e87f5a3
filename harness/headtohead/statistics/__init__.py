"""Paired tests, intervals, power, equivalence, BLEU and chrF: no files."""
