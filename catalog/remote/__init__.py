"""The catalog of a service on another machine, which is changed through its internal API."""
