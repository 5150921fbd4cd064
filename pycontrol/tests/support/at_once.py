"""Programs whose threads do something for the first time at the same moment; a crash ends their process, not the tests'."""

import subprocess
import sys

__all__ = ["run_at_once"]

_PROGRAM = """
import faulthandler, sys, threading

faulthandler.enable()
sys.setswitchinterval(1e-6)

def at_once(work):
    barrier = threading.Barrier(4)
    def run():
        barrier.wait()
        work()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""


def run_at_once(program: str) -> None:
    """Run a program that calls `at_once(work)`: four threads do that work at the same moment. It must end without an error."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM + program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
