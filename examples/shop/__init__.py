"""A small shop with four endpoints and a web form: `python -m examples.shop`. See README.md."""
