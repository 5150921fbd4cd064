"""A worker process: its start, its loop, and what it shares with its supervisor."""
