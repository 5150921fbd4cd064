"""Declare an endpoint, and run it inside a process or under a supervisor."""
