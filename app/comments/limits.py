"""GitHub's limit for a comment, and words that several comments share."""

from __future__ import annotations

MAX_BODY_CHARS = 65_536
WRITERS_WORDS = "someone with write access to this repository"
