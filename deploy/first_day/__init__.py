"""Run rowpost's checks on a real SQL Server, and leave one report with a verdict for each step.

    export ROWPOST_FIRST_DAY_URL='Server=...;UID=...;PWD=...'
    make sqlserver/first-day

The steps are in `steps`, in their order. `scratch` makes the database and the login that they use, and drops them.
`report` writes report.md and report.json. docs/guides/sql-server-first-day.md is the page for the DBA.
"""
