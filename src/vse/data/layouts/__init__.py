"""One module for each layout of a dataset on disk."""
