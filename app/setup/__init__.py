"""`liger-bot setup`: registers the GitHub App through GitHub's manifest flow and writes down what the service needs."""

from app.setup.flow import Wanted, run_setup

__all__ = ["Wanted", "run_setup"]
