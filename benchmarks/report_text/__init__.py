"""Recomputation of the numbers in the text of a report; nothing of headtohead is imported."""
