"""Templates of a plugin package: a working plugin for each family, and the other files of the package."""
