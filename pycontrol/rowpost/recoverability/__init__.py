"""What happens to a message whose handler failed: retry, delayed retry, or the error queue."""
