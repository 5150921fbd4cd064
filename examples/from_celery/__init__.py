"""What was a task of Celery: a message, its handler, and a program that sends it with its own row."""
