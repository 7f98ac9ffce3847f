"""A small library on this machine to crawl: series of chapters, behind a session that expires.

    python server.py --port 8026

Prints its address when it listens. ``/index`` lists the series, ``/series/N`` their chapters, ``/chapter/N/M`` the
parts of a chapter; ``/content/N/M/P`` is a part. ``/login`` returns a session, which clients send as ``X-Session``;
``/expire`` ends all sessions. ``/content/2/1/1`` is broken until a request for ``/mend``; ``/count`` returns the
number of fetches of each path.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

#: The number of children of each level.
BELOW = {"index": 3, "series": 4, "chapter": 2}


class Library(BaseHTTPRequestHandler):
    """Answers for the whole library."""

    sessions: ClassVar[set[str]] = set()
    fetched: ClassVar[Counter[str]] = Counter()
    mended: ClassVar[list[bool]] = []

    def do_GET(self) -> None:
        kind, *words = self.path.strip("/").split("/")
        match kind:
            case "login":
                session = secrets.token_hex(8)
                self.sessions.add(session)
                self._answer(200, session)
            case "expire":
                self.sessions.clear()
                self._answer(200, "expired")
            case "mend":
                self.mended.append(True)
                self._answer(200, "mended")
            case "count":
                self._answer(200, self.fetched)
            case _ if self.headers.get("X-Session") not in self.sessions:
                self._answer(401, "the session has expired")
            case "index" | "series" | "chapter":
                self._answer(200, list(range(1, BELOW[kind] + 1)))
            case "content" if words == ["2", "1", "1"] and not self.mended:
                self._answer(500, "a page is torn out")
            case "content":
                self.fetched["/".join(words)] += 1
                self._answer(200, f"part {'.'.join(words)}")
            case _:
                self._answer(404, "there is no such page")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        del format, args

    def _answer(self, code: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8026)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Library)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
