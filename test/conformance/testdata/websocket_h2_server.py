"""A WebSocket echo server over HTTP/2 (RFC 8441). Prints its port, and ends when standard input ends."""

import socket
import sys
import threading

import wsproto.events

from websocket_h2 import Link, PerMessageDeflate, close


def accept(one, head):
    """Responds to a WebSocket request. If head is None, echoes the messages that arrived instead."""
    if head is None:
        echo(one)
        return
    keys = [name for name in head if name in ("sec-websocket-key", "sec-websocket-accept", "upgrade", "connection")]
    fits = head[":method"] == "CONNECT" and head.get(":protocol") == "websocket" and head.get("sec-websocket-version") == "13"
    if keys or not fits:
        one.link.h2.send_headers(one.stream, [(":status", "400"), ("x-why", " ".join(keys))], end_stream=True)
        return
    response, extensions = [(":status", "200")], []
    if "echo" in head.get("sec-websocket-protocol", ""):
        response.append(("sec-websocket-protocol", "echo"))
    offer = head.get("sec-websocket-extensions", "")
    if offer.startswith("permessage-deflate"):
        deflate = PerMessageDeflate()
        accepted = deflate.accept(offer.split(",")[0])
        response.append(("sec-websocket-extensions", "permessage-deflate" + (f"; {accepted}" if isinstance(accepted, str) and accepted else "")))
        extensions.append(deflate)
    one.link.h2.send_headers(one.stream, response)
    one.begin(extensions)
    if head[":path"] == "/leave":
        one.send(close(4001, "leaving"))


def echo(one):
    while one.events:
        event = one.events.popleft()
        if isinstance(event, wsproto.events.CloseConnection):
            if one.messages.state.name == "REMOTE_CLOSING":
                one.send(event.response())
            one.end()
        elif isinstance(event, str):
            one.send(wsproto.events.TextMessage(data=event))
        else:
            one.send(wsproto.events.BytesMessage(data=bytes(event)))


def serve(conn):
    try:
        link = Link(conn, False, accept)
        while True:
            link.receive()
    except (EOFError, ConnectionError):
        conn.close()


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def loop():
        while True:
            conn, _ = listener.accept()
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(conn,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()
    sys.stdin.read()


main()
