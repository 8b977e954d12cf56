"""Model backends: HTTP endpoints, fleets, embedded weights, scripts, and the journal around them."""
