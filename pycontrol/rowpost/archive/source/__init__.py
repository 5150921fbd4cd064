"""Read queues in ranges, each message exactly once although transactions commit out of order."""
