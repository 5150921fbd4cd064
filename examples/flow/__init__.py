"""The shop's flow of messages: kept while it happens, measured, drawn, and what failed brought back."""
