"""Keys and tokens of the environment never leave it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SECRET = re.compile(
    r"(^|_)(KEYS?|AUTH|CREDENTIALS?|PAT|PASS|PWD?)(_|$)|(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY)S?(_|$)",
    re.IGNORECASE,
)
"""Names of environment variables whose values are secret: by whole words, so that GIT_AUTHOR_NAME is not one."""

PLACES = re.compile(r"(^(OLD)?PWD|_PATH|_FILE|_DIR|_SOCK|_URL|_METHOD|_ENABLED)$", re.IGNORECASE)
"""Names that say where something is or how it is used, not what it is."""

SHORTEST = 8
"""Characters; a shorter value is no key, and would hide innocent words."""


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Values to hide, the longest first, since one may contain another."""
    found = {value for name, value in environment.items() if _is_secret(name) and len(value) >= SHORTEST}
    return sorted(found, key=len, reverse=True)


def _is_secret(name: str) -> bool:
    return SECRET.search(name) is not None and PLACES.search(name) is None


def redacted(value: Any, secrets: list[str]) -> Any:
    """A nested plain value with every secret in its strings, keys of dicts included, replaced by ***."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return value
    if isinstance(value, Mapping):
        return {redacted(key, secrets): redacted(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, secrets) for item in value]
    return value
