"""Where candidates come from: one model, many draws, and methods that make new answers out of old ones."""
