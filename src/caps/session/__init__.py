"""From a config to results: resolve it, open a session, run cases, solve questions."""
