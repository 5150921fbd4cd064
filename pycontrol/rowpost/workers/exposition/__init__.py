"""Serve the metrics and the health of a supervisor over HTTP: only if its environment says where."""
