"""What metrics and tracing cost, in pairs of rounds with and without them."""
