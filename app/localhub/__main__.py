"""`python -m app.localhub --data DIR --port N`: serve a local GitHub until stopped."""

import argparse
import contextlib
import logging
import signal
import sys
import threading
from pathlib import Path

from app.localhub.hub import LocalHub

PORT_IN_USE = 98


def main(arguments: list[str] | None = None) -> int:
    """Serve; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m app.localhub", description="A small GitHub for this machine."
    )
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the state")
    parser.add_argument("--port", type=int, default=8400, help="port to answer on (0: any free one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to answer on")
    parser.add_argument(
        "--enterprise", action="store_true", help="behave as an older GitHub Enterprise Server"
    )
    parser.add_argument("--no-rate-limit", action="store_true", help="count requests but refuse none")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    hub = LocalHub(options.data, enterprise=options.enterprise, rate_limited=not options.no_rate_limit)
    try:
        with hub.serve(options.host, options.port) as served:
            sys.stdout.write(f"local GitHub at {served.url}\n")
            sys.stdout.flush()
            stopped.wait()
    except OSError as error:
        if error.errno != PORT_IN_USE:
            raise
        sys.stderr.write(f"port {options.port} is in use; choose another with --port\n")
        return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
