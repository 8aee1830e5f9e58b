"""The Widget Catalog: a public, read-mostly HTTP API on one SQLite file."""

__version__ = "1.1.0"

# The path prefix of the public API.
V1_PREFIX = "/api/v1/widgets/"
# On every response below V1_PREFIX: pages of every origin may read it, with these two headers.
CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag, Retry-After",
}
# In the environ of a request: the name of the endpoint that Flask chose. A request has none if no
# route matches, or if the server refuses it.
ENDPOINT = "catalog.endpoint"
