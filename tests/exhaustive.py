"""Tests of minutes each, which `make test-all` runs and `make test` leaves out to stay within its twenty minutes."""

from __future__ import annotations

import os

import pytest

EXHAUSTIVE = bool(os.environ.get("LIGER_BOT_TEST_ALL"))
exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="takes minutes; `make test-all` runs it")
