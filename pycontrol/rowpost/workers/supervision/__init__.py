"""The supervisor: one loop that reads reports, requests peeks, and starts and stops workers for each queue."""
