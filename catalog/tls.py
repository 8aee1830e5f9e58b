"""TLS for the commands that ask another service."""

import ssl


def create_context(ca: str) -> ssl.SSLContext:
    """Return a context that also trusts the certificates in this PEM file."""
    context = ssl.create_default_context()
    context.load_verify_locations(ca)
    return context


def describe_refusal(error: ssl.SSLCertVerificationError) -> str:
    """Return why the certificate of a server was refused, as the end of a sentence."""
    cause = error.verify_message.rstrip(".")
    return f"its certificate is not valid: {cause}; --ca is for a private authority"
