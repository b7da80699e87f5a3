"""Hook specifications, the registry, and the base classes of the plugin families."""
