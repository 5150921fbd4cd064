"""Two endpoints in processes of their own, one of NServiceBus and one of rowpost, for the tests in `tests/interop`.

Both speak one protocol of JSON lines, which `tests/interop/endpoint/README.md` lists.

    line_process.py       a process that is driven by lines on stdin, and whose lines on stdout are collected
    dotnet.py             builds the endpoint in C#, or says why it cannot; connection strings of .NET
    rowpost_endpoint.py   the same endpoint, written with rowpost
    messages.py           the messages that both know
    stand_in.py           what takes the place of the C# where there is no .NET, to test the driver and the scenarios
    stage.py              the fixture with which a scenario starts both
"""
