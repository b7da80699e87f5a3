"""The words and rules behind the toy-grammar dataset."""
