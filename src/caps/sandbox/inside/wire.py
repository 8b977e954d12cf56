"""Messages between a program in the sandbox and its parent: a length, a line end, the bytes.

Replies of a served candidate can be split without parsing the values in them: `L` (loaded), `U` and a text
(does not parse), or a first line of a letter and the milliseconds of processor time. After `R` follow three
texts about what was raised (the type, its built-in base, the message), after `V` the result in a line, and
the arguments if they changed.
"""

import os

MAX_TEXT = 500  # characters of a text about a call
MAX_DIGITS = 12  # of an exit code, a size or a time


class Wire:
    """Takes over standard input and output; those of the program are redirected to the null device."""

    def __init__(self) -> None:
        self._input, self._output = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        os.close(null)
        self.send(b"ready")

    def send(self, message: bytes) -> None:
        """Send one message."""
        left = memoryview(b"%d\n%b" % (len(message), message))
        while left:
            left = left[os.write(self._output, left) :]

    def receive(self) -> bytes | None:
        """Wait for a message; None at the end of the input."""
        header = b""
        while not header.endswith(b"\n"):
            byte = os.read(self._input, 1)
            if not byte:
                return None
            header += byte
        missing, parts = int(header), []
        while missing:
            part = os.read(self._input, min(missing, 1 << 20))
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close both pipes."""
        os.close(self._input)
        os.close(self._output)


def limit_cpu(seconds: float) -> None:
    """End this process once it has used this much more processor time, rounded up to a whole second."""
    import resource  # noqa: PLC0415 - not on Windows, where other parts of this module are used

    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard >= 0:  # reaching that one would look like a crash
        soft = max(1, min(soft, hard - 1))
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def join_texts(*texts: str) -> bytes:
    """Join texts into one message, each truncated; invalid Unicode is replaced."""
    cut = (text[:MAX_TEXT].replace("\0", " ") for text in texts)
    return b"\0".join(text.encode("utf-8", "replace") for text in cut)


def split_texts(data: bytes, count: int) -> list[str]:
    """Split any message into `count` texts; missing ones are empty."""
    parts = data[: 5 * MAX_TEXT * count].split(b"\0", count - 1)
    texts = [part.decode("utf-8", "replace")[:MAX_TEXT] for part in parts]
    return texts + [""] * (count - len(texts))


def reply_value(result: bytes, after: bytes = b"", *, milliseconds: int = 0) -> bytes:
    """The reply of a call that returned."""
    return b"V%d\n%b\n%b" % (milliseconds, result, after)


def reply_raised(kind: str, base: str, text: str, *, milliseconds: int = 0) -> bytes:
    """The reply of a call that raised an exception of this type, with its built-in base and its message."""
    return b"R%d\n%b" % (milliseconds, join_texts(kind, base, text))


def split_reply(reply: bytes) -> tuple[bytes, int, bytes] | None:
    """The letter `V` or `R` of a reply, its milliseconds and the rest; None for any other reply."""
    end = reply.find(b"\n", 0, MAX_DIGITS + 2)
    letter, digits = reply[:1], reply[1 : max(end, 1)]
    if letter not in (b"V", b"R") or not digits.isdigit():
        return None
    return letter, int(digits), reply[end + 1 :]
