"""What is claimed about speed, as programs: see README.md."""
