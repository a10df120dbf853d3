"""Tests a WebSocket echo server over HTTP/2 (RFC 8441). Prints the name of each check that passes.

Arguments: the address HOST:PORT, and the size of the large message in bytes."""

import os
import socket
import sys

import wsproto.events

from websocket_h2 import Link, PerMessageDeflate, close


def text(data, finished=True):
    return wsproto.events.TextMessage(data=data, message_finished=finished)


def binary(data):
    return wsproto.events.BytesMessage(data=data)


def connect(link, authority, path, **more):
    fields = {"sec-websocket-version": "13", **more}
    one = link.open(authority, path, fields)
    assert one.response[":status"] == "200", one.response
    for name in ("sec-websocket-accept", "upgrade", "connection"):
        assert name not in one.response, one.response
    return one


def leave(one, code=1000, reason="done"):
    one.send(close(code, reason))
    event = one.next()
    assert (event.code, event.reason) == (code, reason), event
    one.end()
    assert one.next() is None


def main(address, size):
    host, port = address.rsplit(":", 1)
    conn = socket.create_connection((host, int(port)), timeout=25)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link = Link(conn, True)
    fields = {"sec-websocket-protocol": "other, echo", "sec-websocket-extensions": "permessage-deflate; client_max_window_bits"}
    one = connect(link, address, "/a%2Fb?c", **fields)
    assert one.response["sec-websocket-protocol"] == "echo", one.response
    assert one.response["sec-websocket-extensions"].startswith("permessage-deflate"), one.response
    print("handshake")

    for message in ["hello", "", "gr\u00fc\u00df \U0001f600"]:
        one.send(text(message))
        got = one.next()
        assert got == message, got
    print("text")

    every = bytes(range(256))
    one.send(binary(every))
    assert one.next() == every
    print("binary")

    one.send(text("one", False))
    one.send(text("two", False))
    one.send(text("three"))
    assert one.next() == "onetwothree"
    print("fragments")

    one.send(wsproto.events.Ping(payload=b"are you there"))
    assert one.next().payload == b"are you there"
    print("ping")

    large = os.urandom(size)
    one.send(binary(large))
    assert one.next() == large
    print("large")

    many = [str(i) for i in range(1000)]
    for message in many:
        one.send(text(message))
    assert [one.next() for _ in many] == many
    print("many")

    leave(one)
    print("close")

    one = connect(link, address, "/leave")
    event = one.next()
    assert (event.code, event.reason) == (4001, "leaving"), event
    one.send(event.response())
    one.end()
    assert one.next() is None
    print("closed by the server")

    sockets = [connect(link, address, "/") for _ in range(50)]
    for i, one in enumerate(sockets):
        one.send(text(str(i)))
    for i, one in enumerate(sockets):
        assert one.next() == str(i)
    for one in sockets:
        leave(one)
    print("fifty at once")


main(sys.argv[1], int(sys.argv[2]))
