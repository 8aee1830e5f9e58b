"""The catalog of a service on another machine, changed through its internal API."""
