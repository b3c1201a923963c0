"""Addresses without the passwords in them."""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_plus

# The text between "://user:" and the last "@", and after "password=".
_PASSWORD = re.compile(
    r"(?P<before>://[^:@/?#]*:)(?P<secret>.*)(?=@)"
    r"|(?P<name>(?:(?:ssl)?password|secret_key|session_token)=)(?P<value>[^&\s]*)"
)
_LEAST_MASKED = 3  # letters: masking a shorter password would damage other words


def without_password(address: str) -> str:
    """Return an address without its password, to be shown and stored."""
    return _PASSWORD.sub(lambda found: f"{found['before'] or found['name']}***", address)


def mask_passwords(text: str, address: str) -> str:
    """Return a text on one line, without the passwords of an address."""
    text = re.sub(r"\s+", " ", text).strip()
    for secret in _secrets(address):
        text = text.replace(secret, "***")
    return text


def _secrets(address: str) -> set[str]:
    """Return the passwords in an address, as written and decoded."""
    found = {match["secret"] or match["value"] or "" for match in _PASSWORD.finditer(address)}
    forms = {form for secret in found for form in (secret, unquote(secret), unquote_plus(secret))}
    return {form for form in forms if len(form) >= _LEAST_MASKED}
