"""The service's settings: one table with the name, default and validation of each.

Each setting is read from the environment as CATALOG_NAME, or from the argument of
configure_catalog() as NAME.
"""

import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import V1_PREFIX
from .domain.client_addresses import TrustedProxies
from .domain.messages import NotAllowedError, escape_unprintable
from .domain.semver_ranges import is_version
from .domain.validators import check_http_url, check_url_template

# Variables such as CATALOG_SERVER are not settings: commands that connect to a service read them.
COMMAND_VARIABLES = {"SERVER", "CA", "TOKEN", "ID_TOKEN"}
# This word in CATALOG_TRUSTED_PROXY stands for clients on Unix sockets, which have no address.
UNIX = "unix"

logger = logging.getLogger(__name__)


class SettingError(ValueError):
    """A setting is invalid; the message names the setting and the allowed values."""


# Converts a setting's string to its value; raises NotAllowedError if the string is invalid.
Parse = Callable[[str], Any]


def whole_number(low: int, high: int) -> Parse:
    def parse(text: str) -> int:
        if not (re.fullmatch("[0-9]{1,10}", text) and low <= int(text) <= high):
            raise NotAllowedError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def one_of(*words: str) -> Parse:
    def parse(text: str) -> str:
        if text not in words:
            raise NotAllowedError(" or ".join(words))
        return text

    return parse


def parse_required(text: str) -> str:
    if not text:
        raise NotAllowedError("filled in")
    return text


def optional(parse: Parse) -> Parse:
    """Return a parser that also accepts an empty string, which leaves the setting unset."""
    return lambda text: parse(text) if text else text


def parse_proxies(text: str) -> TrustedProxies:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        networks = [ip_network(part) for part in parts if part != UNIX]
    except ValueError:
        raise NotAllowedError('a comma-separated list of addresses, networks or "unix"') from None
    return TrustedProxies(networks, UNIX in parts)


def parse_address(text: str) -> str:
    split_address(text)
    return text


def parse_directory(text: str) -> str:
    if not Path(text).is_dir():
        raise NotAllowedError("a directory of Iconify JSON files")
    return text


def parse_version(text: str) -> str:
    if not is_version(text):
        raise NotAllowedError("a version")
    return text


def parse_base_url(text: str) -> str:
    try:
        if set("?#") & set(check_http_url(text)):
            raise ValueError
    except ValueError:
        raise NotAllowedError("an absolute http or https URL without ? or #") from None
    return text.rstrip("/")


def parse_contact(text: str) -> str:
    is_email = re.fullmatch(r"[^\s@/:?&%]+@[^\s@/:?&%]+", text)
    try:
        return text if is_email else check_http_url(text)
    except ValueError:
        raise NotAllowedError("an e-mail address, or an http or https URL") from None


def parse_node(text: str) -> str:
    if "," in text:
        raise NotAllowedError("one URL: name the node on this machine, which forwards writes")
    if "@" in text:
        raise NotAllowedError(
            "a URL without a user and password; set CATALOG_RQLITE_AUTH to a file that has them"
        )
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.path.strip("/") or parts.query or parts.fragment:
        raise NotAllowedError(
            "the http or https URL of the rqlite node on this machine, without a path"
        )
    return text.rstrip("/")


def read_node_user(path: str) -> str:
    """Return the node's user and password from a file that other users cannot read."""
    try:
        with open(path, encoding="utf-8") as file:
            mode, line = os.fstat(file.fileno()).st_mode, file.readline().strip()
    except (OSError, UnicodeDecodeError):
        raise NotAllowedError("a file that exists and that this user can read") from None
    if mode & stat.S_IROTH:
        raise NotAllowedError("a file that other users cannot read: run chmod o= on it")
    if ":" not in line:
        raise NotAllowedError("a file whose first line is USER:PASSWORD")
    return line


def parse_file(text: str) -> str:
    if not Path(text).is_file():
        raise NotAllowedError("a file")
    return text


def parse_wheel(text: str) -> str:
    if not (text.endswith(".whl") and Path(text).is_file()):
        raise NotAllowedError("a file whose name ends with .whl")
    return text


@dataclass(frozen=True)
class Setting:
    """One setting of the service."""

    name: str
    default: str
    # If parse is None, any string is valid.
    parse: Parse | None = None
    # True if the value may contain a password and must not appear in messages.
    is_secret: bool = False


SETTINGS = (
    Setting("DATABASE", "catalog.db", parse_required),
    Setting("RQLITE", "", optional(parse_node), is_secret=True),
    Setting("RQLITE_AUTH", "", optional(read_node_user)),
    Setting("RQLITE_CA", "", optional(parse_file)),
    Setting("HOST", "127.0.0.1", parse_required),
    Setting("PORT", "8080", whole_number(0, 65535)),
    Setting("MAX_CONNECTIONS", "900", whole_number(10, 100_000)),
    Setting("MAX_CONNECTIONS_PER_CLIENT", "225", whole_number(0, 100_000)),
    Setting("MAX_BODY_BYTES", "4096", whole_number(0, 1024 * 1024)),
    Setting("MAX_BUNDLE_BYTES", "33554432", whole_number(1024, 1024 * 1024 * 1024)),
    Setting("REQUEST_TIMEOUT", "20", whole_number(1, 3600)),
    Setting("IDLE_TIMEOUT", "75", whole_number(1, 3600)),
    Setting("STOP_TIMEOUT", "10", whole_number(1, 3600)),
    Setting("TRUSTED_PROXY", "", parse_proxies),
    Setting("LOG_LEVEL", "info", one_of("debug", "info", "warning", "error")),
    Setting("LOG_FORMAT", "text", one_of("text", "json")),
    Setting("METRICS", "", optional(parse_address)),
    Setting("MINIMUM_CLI_VERSION", "1.0.0", parse_version),
    Setting("ICONS", "", optional(parse_directory)),
    Setting("BUNDLE_URL", "", optional(check_url_template)),
    Setting("BUNDLES", ""),
    Setting("BACKUPS", ""),
    Setting("PUBLIC_URL", "", optional(parse_base_url)),
    Setting("INSTALL_URL", "", optional(check_url_template)),
    Setting("CONTACT", "", optional(parse_contact)),
    Setting("WHEEL", "", optional(parse_wheel)),
)
DEFAULTS = {setting.name: setting.default for setting in SETTINGS}


def read_setting(name: str, environment: Mapping[str, str]) -> Any:
    """Return one setting from the environment, or its default; raise SettingError if invalid."""
    (setting,) = [each for each in SETTINGS if each.name == name]
    return _parse(setting, environment.get(f"CATALOG_{name}", setting.default))


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each setting in the environment, as a string."""
    names = {name: f"CATALOG_{name}" for name in DEFAULTS}
    return {name: environment[key] for name, key in names.items() if key in environment}


def parse_settings(config: MutableMapping[str, Any]) -> None:
    """Validate the settings and convert their values; raise SettingError if one is invalid."""
    for setting in SETTINGS:
        text = str(config[setting.name])
        value = _parse(setting, text)
        # If the caller passed a Path, keep it instead of replacing it with a string.
        if value != text:
            config[setting.name] = value
    if config["RQLITE"] and not config["BUNDLES"]:
        raise SettingError(
            "CATALOG_BUNDLES must be set with CATALOG_RQLITE: rqlite does not copy files."
        )


def _parse(setting: Setting, text: str) -> Any:
    try:
        return setting.parse(text) if setting.parse else text
    except NotAllowedError as error:
        name = f"CATALOG_{setting.name}"
        sentence = f"{name} must be {error}" if setting.is_secret else error.about(name, text)
        raise SettingError(f"{sentence}.") from None


def warn_of_unknown_settings(environment: Iterable[str]) -> None:
    """Log each variable that looks like a setting but is not one, with the most similar setting."""
    names = (name for name in environment if name.startswith("CATALOG_"))
    known = DEFAULTS.keys() | COMMAND_VARIABLES
    for name in sorted({name.removeprefix("CATALOG_") for name in names} - known):
        nearest = get_close_matches(name, DEFAULTS, n=1, cutoff=0.7)
        advice = f"Did you mean CATALOG_{nearest[0]}?" if nearest else "It has no effect."
        logger.warning("CATALOG_%s is not a setting. %s", escape_unprintable(name), advice)


# A service can listen on these addresses, but clients cannot connect to them.
WILDCARD_HOSTS = ("0.0.0.0", "::", "*")  # noqa: S104


def served_url_template(settings: Mapping[str, Any]) -> str:
    """Return the URL template for bundles on this service.

    Only exports use its host: responses take the host from CATALOG_PUBLIC_URL or the request.
    """
    return f"{served_url(settings)}{V1_PREFIX}{{scope}}/{{name}}/{{version}}/bundle.js"


def served_url(settings: Mapping[str, Any]) -> str:
    """Return the base URL of a service with these settings."""
    host, port = settings["HOST"], settings["PORT"]
    if host in WILDCARD_HOSTS:
        host = "localhost"
    if ":" in host:
        host = f"[{host}]"
    return settings["PUBLIC_URL"] or f"http://{host}" + (f":{port}" if port else "")


def split_address(text: str) -> tuple[str, int]:
    """Split an address such as 127.0.0.1:9091 into host and port; raise ValueError if invalid."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]+)\]|([^][:\s]+)):([0-9]{1,5})", text)
    if not match or int(match[3]) > 65535:
        raise NotAllowedError("an address with a port, such as 127.0.0.1:9091 or [::1]:9091")
    return match[1] or match[2], int(match[3])
