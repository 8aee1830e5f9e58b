"""A catalog on another machine, changed through the internal API of its service."""
