"""Handle each message once if the business data is in another database than the queue."""
