"""Notes what a process does outside of the database, in the file of the variable SHOP_JOURNAL."""

import os


def note(what: str) -> None:
    with open(os.environ["SHOP_JOURNAL"], "a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()}\n")


def noted() -> list[str]:
    """What all processes have noted, without their ids."""
    try:
        with open(os.environ["SHOP_JOURNAL"], encoding="utf-8") as file:
            return [line.rpartition(" ")[0] for line in file]
    except FileNotFoundError:
        return []
