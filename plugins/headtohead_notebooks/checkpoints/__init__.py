"""Import of a notebook's checkpoint as a run of headtohead."""
