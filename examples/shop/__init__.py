"""A small shop of three endpoints and a web form: `python -m examples.shop`. See README.md."""
