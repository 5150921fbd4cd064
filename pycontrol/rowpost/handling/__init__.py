"""What handlers receive and what they send: the context, the registered handlers, audit copies."""
