"""The archive of processed messages: its files, schemas and policies."""
