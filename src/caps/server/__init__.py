"""An OpenAI-compatible endpoint whose answers are selected."""
