"""A Django project: a view that stores an order and sends a command in `atomic()`, and a handler that works with the models."""
