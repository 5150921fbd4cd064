"""What operators do, each operation once: the command line, its --json, the dashboard and its JSON interface render
it.
"""
