"""Which changes commit together with a message, and how several databases agree on it."""
