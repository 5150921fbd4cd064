"""How each engine is spoken to: the only place outside `sql/` where SQL is spelt, and only to spell a call.

A dialect opens connections, spells the call of a procedure, begins and ends transactions, quotes names and literals
for scripts, and turns the driver's errors into rowpost's.
"""
