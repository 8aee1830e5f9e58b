"""TLS for the commands that ask another service."""

import ssl


class CertificatesError(Exception):
    """A file has no certificates that can be read; the message names it, without a full stop."""


def create_context(ca: str | None) -> ssl.SSLContext:
    """Return a context that trusts the certificates of the system, and those in a PEM file."""
    context = ssl.create_default_context()
    # Only the alternative names of a certificate count.
    context.hostname_checks_common_name = False
    try:
        if ca:
            context.load_verify_locations(ca)
    except OSError as error:
        raise CertificatesError(f"{ca} is not a PEM file of certificates") from error
    return context


def describe_refusal(error: ssl.SSLCertVerificationError) -> str:
    """Return why the certificate of a server was refused, as the end of a sentence."""
    cause = error.verify_message.rstrip(".")
    return f"its certificate is not valid: {cause}; --ca is for a private authority"
