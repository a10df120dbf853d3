"""Tests a WebSocket echo server over HTTP/2 (RFC 8441). Prints the name of each check that passes.

Arguments: the address HOST:PORT, and the size of the large message in bytes."""

import os
import socket
import sys

import wsproto.events

from websocket_h2 import HTTP2Connection, PerMessageDeflate, close


def text(data, finished=True):
    return wsproto.events.TextMessage(data=data, message_finished=finished)


def binary(data):
    return wsproto.events.BytesMessage(data=data)


def connect(connection, authority, path, **more):
    fields = {"sec-websocket-version": "13", **more}
    ws = connection.open(authority, path, fields)
    assert ws.response[":status"] == "200", ws.response
    for name in ("sec-websocket-accept", "upgrade", "connection"):
        assert name not in ws.response, ws.response
    return ws


def leave(ws, code=1000, reason="done"):
    ws.send(close(code, reason))
    event = ws.next_event()
    assert (event.code, event.reason) == (code, reason), event
    ws.end()
    assert ws.next_event() is None


def main(address, size):
    host, port = address.rsplit(":", 1)
    conn = socket.create_connection((host, int(port)), timeout=25)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = HTTP2Connection(conn, True)
    fields = {"sec-websocket-protocol": "other, echo", "sec-websocket-extensions": "permessage-deflate; client_max_window_bits"}
    ws = connect(connection, address, "/a%2Fb?c", **fields)
    assert ws.response["sec-websocket-protocol"] == "echo", ws.response
    assert ws.response["sec-websocket-extensions"].startswith("permessage-deflate"), ws.response
    print("handshake")

    for message in ["hello", "", "gr\u00fc\u00df \U0001f600"]:
        ws.send(text(message))
        got = ws.next_event()
        assert got == message, got
    print("text")

    every = bytes(range(256))
    ws.send(binary(every))
    assert ws.next_event() == every
    print("binary")

    ws.send(text("one", False))
    ws.send(text("two", False))
    ws.send(text("three"))
    assert ws.next_event() == "onetwothree"
    print("fragments")

    ws.send(wsproto.events.Ping(payload=b"are you there"))
    assert ws.next_event().payload == b"are you there"
    print("ping")

    large = os.urandom(size)
    ws.send(binary(large))
    assert ws.next_event() == large
    print("large")

    many = [str(i) for i in range(1000)]
    for message in many:
        ws.send(text(message))
    assert [ws.next_event() for _ in many] == many
    print("many")

    leave(ws)
    print("close")

    ws = connect(connection, address, "/leave")
    event = ws.next_event()
    assert (event.code, event.reason) == (4001, "leaving"), event
    ws.send(event.response())
    ws.end()
    assert ws.next_event() is None
    print("closed by the server")

    sockets = [connect(connection, address, "/") for _ in range(50)]
    for i, ws in enumerate(sockets):
        ws.send(text(str(i)))
    for i, ws in enumerate(sockets):
        assert ws.next_event() == str(i)
    for ws in sockets:
        leave(ws)
    print("fifty at once")


main(sys.argv[1], int(sys.argv[2]))
