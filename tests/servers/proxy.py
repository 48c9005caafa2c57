"""A TCP proxy that cuts, delays, half-closes or mutes connections: S7 when the network fails."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Literal

#: Where to cut: before the marked request reaches the server, before its answer comes back, or
#: when half of the answer's first bytes did. "end" closes one direction only: the client hears
#: that no answer will come, and may still send. "silence" cuts nothing: the request is passed
#: on, and the client hears nothing ever after.
Cut = Literal["request", "answer", "half", "end", "silence"]


class Proxy:
    """Passes bytes on to a server on loopback, until it sees the marker."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._marker = b""
        self._where: Cut = "request"
        self._open: set[socket.socket] = set()
        #: Clients that get half of what comes next.
        self._halved: set[socket.socket] = set()
        #: Clients that get nothing any more.
        self._muted: set[socket.socket] = set()
        #: While true, nobody gets an answer, though all may connect and send.
        self.silent = False
        #: How long every answer is held back.
        self.delay_seconds = 0.0
        #: While true, nobody is let through.
        self.refusing = False
        self.cuts = 0
        #: How many connections were made through it.
        self.connections = 0
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def cut_at(self, marker: bytes, where: Cut, *, then_refuse: bool = False) -> None:
        """Cut the connection on which these bytes are sent, once."""
        self._where, self._then_refuse = where, then_refuse
        self._marker = marker

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open |= {client, server}
                for work in (self._requests, self._answers):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._marker and self._marker in data:
                    if self._where in ("request", "answer"):
                        self._cut(client, server, data)
                        return
                    self._spoil(client)
                server.sendall(data)
        self._end(client, server)

    def _spoil(self, client: socket.socket) -> None:
        """The request goes on; its answer will not be whole."""
        self._marker = b""
        if self._where == "half":
            self._halved.add(client)
            return
        self._muted.add(client)
        self.cuts += 1
        if self._where == "end":
            client.shutdown(socket.SHUT_WR)

    def _cut(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        self._marker = b""
        self.refusing = self._then_refuse
        self.cuts += 1
        if self._where == "answer":
            # The other thread finds the client gone and lets the answer drop.
            client.shutdown(socket.SHUT_RDWR)
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            return
        self._end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                time.sleep(self.delay_seconds)
                if self.silent or client in self._muted:
                    continue
                if client in self._halved:
                    self._halved.discard(client)
                    self.cuts += 1
                    client.sendall(data[: len(data) // 2])
                    break
                client.sendall(data)
        self._end(client, server)

    def _end(self, *pair: socket.socket) -> None:
        for one in pair:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)
            self._muted.discard(one)

    def cut_now(self) -> None:
        """Cut every connection that is open."""
        self.cuts += 1
        self._end(*self._open)

    def close(self) -> None:
        """Let go of everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end(*self._open)
