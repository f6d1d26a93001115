"""Where servers are and what is sent to them in secret: base URLs, keys and headers from the environment."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from needlemap.errors import SettingsError
from needlemap.secrets import hidden

NO_KEY = "none"  # local servers want none: nothing is sent
_HEADER = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)


def base_url_of(given: str | None, variable: str, home: str) -> str:
    """Where to ask: what was given, else the environment's, else the provider's own address.

    Raises SettingsError for what is no address, and for one that holds a key.
    """
    url = given or os.environ.get(variable) or home
    check_address(url, variable.replace("BASE_URL", "API_KEY"))
    return url.rstrip("/")


def check_address(url: str, variable: str = "OPENAI_API_KEY") -> None:
    """Raises SettingsError for what is no address, and for one that holds a key: run.json and error messages
    would keep it."""
    shown = hidden(url)
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        host = parts.hostname or ""
        host.encode("idna")
        if host.rpartition(".")[2].isdigit():
            ip_address(host)
    except ValueError:
        sound = False
    if not sound:
        raise SettingsError(f"'{shown}' is no base URL. Type one such as http://127.0.0.1:8000/v1.")
    if shown != url:
        raise SettingsError(
            f"The base URL {shown} holds a key, which run.json would keep. Take it out, and "
            f"type: export {variable}=YOUR-KEY"
        )


def key_of(variable: str, base_url: str, host: str, *, required: bool = False) -> str:
    """The key in the environment; a placeholder for a server elsewhere than at the provider's own host."""
    key = from_environment(variable)
    if key:
        return key
    if required or at_home(base_url, host):
        raise SettingsError(f"No key for {urlsplit(base_url).hostname}. Type: export {variable}=YOUR-KEY")
    return NO_KEY


def from_environment(variable: str) -> str:
    """A key, or what else goes into a header; '' for none. Raises SettingsError for what no header holds."""
    value = os.environ.get(variable, "").strip()
    if not value.isascii() or not value.isprintable():
        raise SettingsError(f"The key in {variable} holds a character no key has. Copy it again.")
    return value


def custom_headers(variable: str) -> dict[str, str]:
    """Headers that the environment names, one a line, as the providers' own clients read them.

    Raises SettingsError.
    """
    found = {}
    for line in filter(str.strip, os.environ.get(variable, "").splitlines()):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise SettingsError(
                f"{variable} holds a line that is no header. Write 'Name: value', one a line."
            )
        found[name.lower()] = value
    return found


def at_home(base_url: str, host: str) -> bool:
    """Whether a base URL leads to the provider itself, or to one of its regions."""
    where = urlsplit(base_url).hostname or ""
    return where == host or where.endswith(f".{host}")
