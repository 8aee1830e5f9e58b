"""The settings of the service: their defaults, their types and what they may be."""

import re
from collections.abc import MutableMapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from click import ClickException

from catalog.documents import web_address
from catalog.semver_ranges import is_version
from catalog.text import quoted

LOG_LEVELS = ("info", "warning", "error")
LOG_FORMATS = ("text", "json")

DEFAULTS = {
    "DATABASE": "catalog.db",
    "HOST": "127.0.0.1",
    "PORT": "8080",
    "THREADS": "8",
    "BACKLOG": "256",
    "MAX_CONNECTIONS": "900",
    "MAX_CONNECTIONS_PER_CLIENT": "225",
    "MAX_HEAD_BYTES": "32768",
    "MAX_BODY_BYTES": "4096",
    "REQUEST_TIMEOUT": "20",
    "IDLE_TIMEOUT": "75",
    "STOP_TIMEOUT": "10",
    "TRUSTED_PROXY": "",
    "LOG_LEVEL": "info",
    "LOG_FORMAT": "text",
    "MINIMUM_CLI_VERSION": "1.0.0",
    "BUNDLE_URL": "",
    "BUNDLES": "",
    "PUBLIC_URL": "",
    "MIRROR_WORKERS": "4",
    "ICONS": "",
}

# The settings that are whole numbers, with the least and the greatest.
NUMBERS = {
    "PORT": (0, 65535),
    "THREADS": (1, 64),
    "BACKLOG": (1, 65535),
    "MAX_CONNECTIONS": (10, 100_000),
    "MAX_CONNECTIONS_PER_CLIENT": (0, 100_000),
    "MAX_HEAD_BYTES": (1024, 1024 * 1024),
    "MAX_BODY_BYTES": (0, 1024 * 1024),
    "REQUEST_TIMEOUT": (1, 3600),
    "IDLE_TIMEOUT": (1, 3600),
    "STOP_TIMEOUT": (1, 3600),
    "MIRROR_WORKERS": (1, 32),
}


def check_settings(config: MutableMapping[str, Any]) -> None:
    """Turn numbers into numbers; a setting that cannot be used stops the start by its name."""
    for name, (low, high) in NUMBERS.items():
        text = str(config[name])
        if not (re.fullmatch("[0-9]{1,7}", text) and low <= int(text) <= high):
            raise bad_setting(name, f"a whole number from {low} to {high}", text)
        config[name] = int(text)
    for name in ("DATABASE", "HOST"):
        if not str(config[name]):
            raise bad_setting(name, "filled in", "")
    for name, words in (("LOG_LEVEL", LOG_LEVELS), ("LOG_FORMAT", LOG_FORMATS)):
        if config[name] not in words:
            raise bad_setting(name, " or ".join(words), str(config[name]))
    try:
        trusted_networks(str(config["TRUSTED_PROXY"]))
    except ValueError as error:
        allowed = "addresses or networks with commas between"
        raise bad_setting("TRUSTED_PROXY", allowed, str(config["TRUSTED_PROXY"])) from error
    if config["ICONS"] and not Path(str(config["ICONS"])).is_dir():
        raise bad_setting("ICONS", "a directory of Iconify JSON files", str(config["ICONS"]))
    if not is_version(str(config["MINIMUM_CLI_VERSION"])):
        raise bad_setting("MINIMUM_CLI_VERSION", "a version", str(config["MINIMUM_CLI_VERSION"]))
    public_url = str(config["PUBLIC_URL"])
    if public_url:
        config["PUBLIC_URL"] = base_url(public_url)


def base_url(address: str) -> str:
    """The address of a service, to which a path can be added."""
    try:
        if set("?#") & set(web_address(address)):
            raise ValueError
    except ValueError:
        allowed = "an absolute http or https URL without ? and #"
        raise bad_setting("PUBLIC_URL", allowed, address) from None
    return address.rstrip("/")


def bad_setting(name: str, allowed: str, value: str) -> ClickException:
    return ClickException(f"CATALOG_{name} must be {allowed}, not {quoted(value)}.")


def trusted_networks(text: str) -> list[IPv4Network | IPv6Network]:
    """The addresses and networks named in the text, between commas; raises ValueError."""
    return [ip_network(part.strip()) for part in text.split(",") if part.strip()]
