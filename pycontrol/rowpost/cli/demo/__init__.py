"""The command `rowpost demo`: send a burst of orders, handle them with real workers, and check every count.

command.py has the arguments and the help, and show.py runs the demo. scenario.py defines the messages and the expected
result, and stage.py deploys, fills and counts the demo's queues. sender.py is the second process, which sends the
burst. handlers.py has the handlers. display.py shows the progress, which progress.py records.
"""
