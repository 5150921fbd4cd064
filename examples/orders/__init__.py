"""Orders over HTTP, with FastAPI and SQLAlchemy: a row and a message in one transaction, and a handler with a session."""
