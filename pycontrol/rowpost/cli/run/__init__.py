"""The command `rowpost run`: a supervisor in the foreground and the display of its queues and events."""
