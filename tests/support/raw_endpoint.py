"""An endpoint that answers with whatever bytes a test wants, true to HTTP or not, on threads of its own.

    with RawEndpoint(always(lambda: endless(b"x" * 65536))) as endpoint: ...

`sent` counts the bytes that were taken from it; an endless answer ends when the client hangs up, or after `MOST` bytes.
"""

import gzip
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

MOST = 400 << 20  # a client without limits takes this, and no more, so that it does not take down the machine

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def answer(body: bytes, *, head: bytes = OK) -> bytes:
    """A whole reply with its length."""
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chat(text: Any = "OK", **more: Any) -> bytes:
    """A chat completion as JSON."""
    message = {"role": "assistant", "content": text}
    return json.dumps(
        {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": "m", **more}
    ).encode()


def endless(part: bytes, *, head: bytes = OK + b"\r\n") -> Iterator[bytes]:
    """A head, and one part again and again."""
    yield head
    while True:
        yield part


def chunk(part: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def gzip_bomb() -> Iterator[bytes]:
    """Ten megabytes of blanks in ten kilobytes, forty times."""
    member = gzip.compress(b" " * (10 << 20))
    yield OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (40 * len(member))
    for _ in range(40):
        yield member


def deflate_bomb(encoding: bytes = b"deflate") -> Iterator[bytes]:
    """One stream whose block of a megabyte of blanks is repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == b"gzip" else 15)
    first = packer.compress(b" ") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    yield OK + b"Content-Encoding: %b\r\n\r\n" % encoding + first
    for _ in range(400):
        yield block


def zstd_bomb() -> Iterator[bytes]:
    """A frame of blocks that stand for 128 kB of one byte each, in four bytes."""
    yield OK + b"Content-Encoding: zstd\r\n\r\n\x28\xb5\x2f\xfd\x00\x58"
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b" "
    for _ in range(100):
        yield block * 32


Answers = Callable[[str, bytes], bytes | Iterable[bytes]]


def always(make: Callable[[], bytes | Iterable[bytes]]) -> Answers:
    """The same answer to every request."""
    return lambda *_: make()


class RawEndpoint:
    """Takes requests, and sends what `answers` makes of path and body; then it hangs up."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.requests: list[tuple[str, bytes]] = []
        self.heads: list[bytes] = []
        self.sent = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._open: set[socket.socket] = set()
        self._ended = False

    def __enter__(self) -> "RawEndpoint":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    async def __aenter__(self) -> "RawEndpoint":
        return self.__enter__()

    async def __aexit__(self, *details: object) -> None:
        self.__exit__(*details)

    def __exit__(self, *_: object) -> None:
        self._ended = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            path, body = self._request(connection)
            self.requests.append((path, body))
            parts = self._answers(path, body)
            sent = 0
            for part in (parts,) if isinstance(parts, bytes) else parts:
                connection.sendall(part)
                sent += len(part)
                self.sent += len(part)
                if sent > MOST or self._ended:
                    break
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        self._open.discard(connection)

    def _request(self, connection: socket.socket) -> tuple[str, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                raise OSError("nothing asked")
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        self.heads.append(head)
        length = next(
            (
                int(one.split(b":")[1])
                for one in head.split(b"\r\n")
                if one.lower().startswith(b"content-length")
            ),
            0,
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head.split(b" ")[1].decode(), body


def drip(parts: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    """Parts with a pause before each."""
    for part in parts:
        time.sleep(seconds)
        yield part
