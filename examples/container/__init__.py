"""A worker in a container: an image, a database, a job that deploys, and a worker that stops in order."""
