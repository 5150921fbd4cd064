"""OpenTelemetry.

Modules of this folder import it, and are imported only if an environment has the section `telemetry`.
"""
