"""Bring a database from its present state to the scripts in `sql/`: plan, apply, verify."""
