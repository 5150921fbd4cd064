"""A shop that takes orders, charges cards and sends mail: a project as a user of rowpost writes it.

An endpoint has a module here, a queue in `shop.yml`, and its tests in `tests`.
"""
