"""The handler of benchmarks/delayed.py: writes down when a message was handled."""


def note(message, connection):
    connection.execute("INSERT INTO handled (number, at) VALUES (%s, clock_timestamp() AT TIME ZONE 'UTC')", (int(message.body),))
