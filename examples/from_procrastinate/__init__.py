"""What was a task of procrastinate: a message, its handler, and a program that sends it with its own row."""
