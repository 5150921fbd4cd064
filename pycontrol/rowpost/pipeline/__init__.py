"""Process messages of one queue on one connection: receive, handle, commit, alone or in batches."""
