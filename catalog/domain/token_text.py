"""The format of access tokens.

A token is `wcat_` followed by letters and digits: an id of 8 characters, 43 characters that encode
256 random bits, and a checksum of 6 characters. The id is the key of the token's row. The checksum
detects typing errors without the database, and lets secret scanners recognise tokens. The bits are
random, so a plain SHA-256 of the token is as safe as a slow hash.
"""

import hashlib
import re
import secrets
import string
import zlib

PREFIX = "wcat_"
ALPHABET = string.digits + string.ascii_letters
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 8, 43, 6
TOKEN = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{ID_LENGTH}}})[0-9A-Za-z]{{{SECRET_LENGTH + 6}}}")


def generate_token() -> tuple[str, str]:
    """Return the id of a new token, and the token itself."""
    id_ = "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))
    secret = _base62(secrets.randbits(256), SECRET_LENGTH)
    text = f"{PREFIX}{id_}{secret}"
    return id_, text + _checksum(text)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), CHECKSUM_LENGTH)


def token_id(text: str) -> str | None:
    """Return the id in a token; None if the token is malformed or mistyped."""
    match = TOKEN.fullmatch(text)
    if not match or text[-CHECKSUM_LENGTH:] != _checksum(text[:-CHECKSUM_LENGTH]):
        return None
    return match[1]


def hash_token(text: str) -> str:
    """Return the hash of a token, as stored in the database."""
    return hashlib.sha256(text.encode()).hexdigest()
