"""The wire format: addresses, messages, headers, message types and serializers, as NServiceBus has them.

Nothing here opens a connection or reads a setting.
"""
