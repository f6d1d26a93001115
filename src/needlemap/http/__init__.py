"""Servers: the client, its faults, what a server states of itself, and its models."""

from needlemap.http.client import (
    LARGEST_BYTES,
    LENT,
    VERSIONED,
    HttpReply,
    JsonClient,
    Sent,
    SyncJsonClient,
    at_home,
    base_url_of,
    bearer,
    check_address,
    custom_headers,
    from_environment,
    key_of,
)

__all__ = [
    "LARGEST_BYTES",
    "LENT",
    "VERSIONED",
    "HttpReply",
    "JsonClient",
    "Sent",
    "SyncJsonClient",
    "at_home",
    "base_url_of",
    "bearer",
    "check_address",
    "custom_headers",
    "from_environment",
    "key_of",
]
