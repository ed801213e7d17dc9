"""Upstream's own unit tests as outside judge: the derived kernels behind the target's Functions. See __main__.py."""
