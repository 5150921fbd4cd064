"""Orders over HTTP, with FastAPI, SQLAlchemy and Alembic: a row and a message in one transaction, and handlers with a session."""
