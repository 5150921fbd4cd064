"""Output that nobody reads: the program goes on, ends when it is told to, and says what it has left out."""

import os
import signal
from pathlib import Path

import pytest

from rowpost.cli.run.output import MOST, PatientOutput
from tests.support.program import Program, environment_file, rowpost
from tests.support.workers import eventually

__all__ = ["rowpost"]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the pipes of Windows have another size")

WORKED = "queues: {Sales: {worker: {handler: 'noted:note', peek_delay: 0.1}}, Billing: {}, error: {}, audit: {}}\n"


@pytest.fixture
def full_pipe():
    """A pipe that takes no byte more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 1024)
    os.set_blocking(writer, True)
    yield reader, writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("number", "options", "expected"), [(signal.SIGTERM, ["--json"], 0), (signal.SIGINT, [], 130)])
def test_a_reader_that_stops_reading_holds_neither_messages_nor_the_end(
    rowpost: Program, full_pipe, tmp_path: Path, number, options, expected
):
    _, writer = full_pipe
    gate = tmp_path / "handled"
    (rowpost.folder / "noted.py").write_text(f"def note(message, connection):\n    open({str(gate)!r}, 'w').close()\n")
    program = rowpost.with_environment(environment_file(rowpost.folder, rowpost.engine, WORKED, "noted"))
    program("send", "Sales", "--raw", stdin=b"x")

    with program.started("run", *options, stdout=writer, stderr=writer) as run:
        eventually(gate.exists, "the message is handled")
        run.process.send_signal(number)
        code = run.process.wait(60)

    assert code == expected


def test_what_the_reader_has_no_room_for_is_left_out_and_told(full_pipe):
    reader, writer = full_pipe
    with os.fdopen(os.dup(writer), "w") as stream:
        output = PatientOutput(stream, lambda count: f"{count} lines left out\n")
        line = "x" * 9_999 + "\n"
        for _ in range(MOST // len(line) + 7):
            output.write(line)
        finished = output.finish(0.0)
        read = b""
        while not read.endswith(b"left out\n"):
            read += os.read(reader, 65536)

        assert (finished, output.finish()) == (False, True)
    lines = read.decode().split("\n")
    assert [each for each in lines if each and set(each) != {"x"}] == ["7 lines left out"]
    assert sum(len(each) == 9_999 for each in lines) == MOST // len(line)


def test_a_reader_that_has_gone_is_an_error_of_the_next_line():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        output = PatientOutput(stream, str)
        output.write("one\n")

        with pytest.raises(BrokenPipeError):
            output.finish()
        with pytest.raises(BrokenPipeError):
            output.write("two\n")
