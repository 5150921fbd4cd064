"""The demo: the main job on real input, with an audience.

scenario.py says what goes in and must come out; stage.py puts it there and counts afterwards; sender.py is the second
process that writes the burst; handlers.py is the business; display.py and chart.py show it; show.py runs it all.
"""
