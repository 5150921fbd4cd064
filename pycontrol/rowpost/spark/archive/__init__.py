"""The archive of processed messages: its files, schemas, policies and plots."""
