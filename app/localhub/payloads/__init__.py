"""Rows as GitHub's JSON: one module a family of objects. Functions read and never change state."""
