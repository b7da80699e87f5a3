"""The analysis of an experiment: contrasts with intervals and verdicts, findings, sentences, published claims."""
