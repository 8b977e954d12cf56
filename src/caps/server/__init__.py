"""An OpenAI-compatible server that answers with the best of several samples."""
