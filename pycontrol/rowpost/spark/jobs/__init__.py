"""One job a module: a pure function from DataFrame to DataFrame, or to a plan, and a `run` that reads and writes."""
