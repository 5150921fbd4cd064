"""The Spark data source `rowpost`: read queues in batches and streams, and write to them."""
