"""What Spark's jobs do with an archive: read and write its rows, policies, copies and replays."""
