"""The Widget Catalog: a public, read-mostly HTTP API on one SQLite file."""

__version__ = "1.1.0"

# The path prefix of the public API.
V1_PREFIX = "/api/v1/widgets/"
# Headers of every response from a path below V1_PREFIX. They let pages from any origin read the
# response, its ETag and its Retry-After.
CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag, Retry-After",
}
# The WSGI environment key for the name of the endpoint that Flask chose. The key is missing if no
# route matches, or if the server rejects the request.
ENDPOINT = "catalog.endpoint"
