"""Model backends: HTTP endpoints, several servers, embedded weights, scripts, and the journal around them."""
