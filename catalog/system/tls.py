"""TLS for requests to other services."""

import ssl


class CertificatesError(Exception):
    """A file has no readable certificates; the message names the file and has no full stop."""


class PemText(str):
    """Certificates in PEM form, used instead of a file name."""


def create_context(ca: str | None) -> ssl.SSLContext:
    """Return a context that trusts the system's certificates and the certificates in ca, if set."""
    context = ssl.create_default_context()
    # Ignore the common name: only a certificate's alternative names are checked.
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    try:
        if isinstance(ca, PemText):
            context.load_verify_locations(cadata=str(ca))
        elif ca:
            context.load_verify_locations(ca)
    except OSError as error:
        raise CertificatesError(f"{ca} is not a PEM file with certificates") from error
    return context


def describe_certificate_error(error: ssl.SSLCertVerificationError) -> str:
    """Return why a server's certificate was rejected, as the end of a sentence."""
    cause = error.verify_message.rstrip(".")
    return f"its certificate is not valid: {cause}; use --ca for a private certificate authority"
