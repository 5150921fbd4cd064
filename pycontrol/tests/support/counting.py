"""Count the round trips of a connection."""

__all__ = ["CountingDialect"]


class CountingDialect:
    """Counts what goes to the server and back."""

    COUNTED = ("execute", "execute_all", "begin", "commit", "rollback", "script", "savepoint", "in_transaction")

    def __init__(self, dialect) -> None:
        self._dialect, self.trips = dialect, []

    def __getattr__(self, name):
        found = getattr(self._dialect, name)
        if name not in self.COUNTED or (name == "in_transaction" and self._dialect.name == "postgresql"):
            return found
        return lambda *arguments, **options: (self.trips.append(name), found(*arguments, **options))[1]
