"""Whatever completes a chat: an HTTP endpoint, a script, and the journal around any of them."""
