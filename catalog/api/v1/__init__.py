"""/api/v1/widgets/*: the public, versioned API with CORS for every origin."""
