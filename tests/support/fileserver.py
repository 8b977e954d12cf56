"""A real server of files for tests, on its own thread: every path has the same content, some names misbehave."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Files(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        kind = self.path.rpartition("/")[2]
        if kind == "moved.jsonl":
            self.send_response(302)
            self.send_header("Location", "/real/moved")
            self.end_headers()
            return
        self.send_response(404 if kind == "gone" else 200)
        self.send_header("Content-Length", str(len(self.server.content) + (kind == "cut") * 99))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *words):
        pass


class FileServer(ThreadingHTTPServer):
    """`content` is what it sends, `asked` the paths it was asked for; gone, cut and moved.jsonl are special."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Files)
        self.asked: list[str] = []
        self.content = b'{"question": "?"}\n'
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving() -> Iterator[FileServer]:
    with FileServer() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()
