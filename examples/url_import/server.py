"""A small site on this machine to import from: good, slow, broken and copied pages, and some behind a consent wall.

    python server.py --port 8025

Prints its address when it listens. ``/copy/N`` has the text of ``/article/N``; ``/slow/N`` answers slowly;
``/broken/N`` fails until a request for ``/mend``; ``/consent/N`` is a consent wall.
"""

from __future__ import annotations

import argparse
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

NAP = 0.2


class Pages(BaseHTTPRequestHandler):
    """Answers for the whole site."""

    mended: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        _, kind, number = [*self.path.split("/"), "", ""][:3]
        match kind:
            case "article" | "copy":
                self._answer(200, _article(number))
            case "slow":
                threading.Event().wait(NAP)
                self._answer(200, _article(f"slow {number}"))
            case "broken":
                self._answer(200 if self.mended.is_set() else 500, _article(f"mended {number}"))
            case "consent":
                self._answer(200, "<title>Before you continue</title><form id='consent'>Accept all?</form>")
            case "mend":
                self.mended.set()
                self._answer(200, "mended")
            case _:
                self._answer(404, "there is no such page")

    def _answer(self, code: int, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the importer tells what it sees."""


def _article(name: str) -> str:
    return f"<title>Article {name}</title><p>{'All about ' + name + '. '}</p>" * 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=8025)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Pages)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
