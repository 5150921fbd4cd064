"""Archive and analyse the shop's messages with Spark, and replay the failed ones: `python -m examples.flow`. See README.md."""
