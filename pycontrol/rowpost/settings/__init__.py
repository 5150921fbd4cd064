"""Read the environment: where the database is, which queues it has, who works on them.

`environment.Settings` is the whole; each other module is one section of the YAML file.
"""
