"""JSON messages over a socket: four bytes that say how long a message is, then the message."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

LARGEST = 256 * 2**20  # bytes of one message
POLL = 0.5  # seconds between two looks at whether the other side still lives


class Closed(BaseException):
    """The other side is gone. Not an Exception, so that nothing takes it for an error of the answer."""


class Channel:
    """One end of a connection. ``alive`` is asked at every step; once it says no, Closed is raised."""

    def __init__(self, connection: socket.socket, alive: Callable[[], bool] = lambda: True) -> None:
        connection.settimeout(POLL)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self.alive = connection, alive

    def send(self, message: dict[str, Any]) -> None:
        """Raises Closed."""
        data = json.dumps(message).encode("ascii")
        view = memoryview(struct.pack("!I", len(data)) + data)
        while view:
            try:
                view = view[self._connection.send(view) :]
            except TimeoutError:
                self._look()
            except OSError:
                raise Closed from None

    def receive(self) -> dict[str, Any]:
        """Raises Closed; also where what comes is not a message."""
        (length,) = struct.unpack("!I", self._exactly(4))
        if length > LARGEST:
            raise Closed
        try:
            message = json.loads(self._exactly(length))
        except (ValueError, RecursionError):
            raise Closed from None
        if not isinstance(message, dict):
            raise Closed
        return message

    def close(self) -> None:
        with suppress(OSError):
            self._connection.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self._look()  # each time: somebody may send a byte now and then, for ever
            try:
                part = self._connection.recv(min(count - len(parts), 2**20))
            except TimeoutError:
                continue
            except OSError:
                raise Closed from None
            if not part:
                raise Closed
            parts += part
        return bytes(parts)

    def _look(self) -> None:
        if not self.alive():
            raise Closed
