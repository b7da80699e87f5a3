"""The base classes of the six plugin families: the contract between the core and its variants."""
