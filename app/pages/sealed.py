"""What our cookies hold: sealed by a key made from the App's client secret, so that only we can read or make them. Pure."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class Seal:
    """Encrypts and authenticates small JSON values. purpose: a value sealed for one can't be opened for another."""

    def __init__(self, secret: str, purpose: str):
        key = HKDF(SHA256(), 32, salt=None, info=f"liger-bot {purpose}".encode()).derive(secret.encode())
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def close(self, value: dict[str, Any]) -> str:
        """The sealed value, in letters that a cookie takes."""
        return self._fernet.encrypt(json.dumps(value).encode()).decode()

    def open(self, sealed: str, max_age_s: int) -> dict[str, Any] | None:
        """The value; None when it isn't ours, was changed, or is older than that."""
        try:
            value = json.loads(self._fernet.decrypt(sealed, ttl=max_age_s))
        except (InvalidToken, ValueError):
            return None
        return value if isinstance(value, dict) else None
