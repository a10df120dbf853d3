"""A WebSocket echo server over HTTP/2 (RFC 8441). Prints its port, and ends when standard input ends."""

import socket
import sys
import threading

import wsproto.events

from websocket_h2 import HTTP2Connection, PerMessageDeflate, close


def accept(ws, head):
    """Responds to a WebSocket request. If head is None, echoes the messages that arrived instead."""
    if head is None:
        echo(ws)
        return
    unexpected = [name for name in head if name in ("sec-websocket-key", "sec-websocket-accept", "upgrade", "connection")]
    valid = head[":method"] == "CONNECT" and head.get(":protocol") == "websocket" and head.get("sec-websocket-version") == "13"
    if unexpected or not valid:
        ws.connection.h2.send_headers(ws.stream, [(":status", "400"), ("x-why", " ".join(unexpected))], end_stream=True)
        return
    response, extensions = [(":status", "200")], []
    if "echo" in head.get("sec-websocket-protocol", ""):
        response.append(("sec-websocket-protocol", "echo"))
    offered = head.get("sec-websocket-extensions", "")
    if offered.startswith("permessage-deflate"):
        deflate = PerMessageDeflate()
        accepted = deflate.accept(offered.split(",")[0])
        response.append(("sec-websocket-extensions", "permessage-deflate" + (f"; {accepted}" if isinstance(accepted, str) and accepted else "")))
        extensions.append(deflate)
    ws.connection.h2.send_headers(ws.stream, response)
    ws.start_messages(extensions)
    if head[":path"] == "/leave":
        ws.send(close(4001, "leaving"))


def echo(ws):
    while ws.events:
        event = ws.events.popleft()
        if isinstance(event, wsproto.events.CloseConnection):
            if ws.messages.state.name == "REMOTE_CLOSING":
                ws.send(event.response())
            ws.end()
        elif isinstance(event, str):
            ws.send(wsproto.events.TextMessage(data=event))
        else:
            ws.send(wsproto.events.BytesMessage(data=bytes(event)))


def serve(conn):
    try:
        connection = HTTP2Connection(conn, False, accept)
        while True:
            connection.receive()
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
