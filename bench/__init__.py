"""The benchmark: our service beside the limit of its own stack and beside its peers."""
