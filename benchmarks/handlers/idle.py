"""A handler that notes when it began."""

import time


def note(message, connection):
    connection.execute("INSERT INTO noted (id, at) VALUES (%s, %s)", (message.body.decode(), time.time()))
