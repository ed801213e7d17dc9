"""Where Chromium is, and the marks of tests that drive it."""

from __future__ import annotations

import os
import shutil

import pytest

CHROMIUM = os.environ.get("LIGER_BOT_CHROMIUM") or shutil.which("chromium")
BROWSER_MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
