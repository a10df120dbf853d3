"""WebSocket over HTTP/2 (RFC 8441). h2 handles the frames, and wsproto handles the messages."""

import collections

import h2.config
import h2.connection
import h2.events
import h2.settings
import wsproto.events
from wsproto.connection import Connection, ConnectionType
from wsproto.extensions import PerMessageDeflate

ENABLE_CONNECT = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL


class Socket:
    """A WebSocket on one stream."""

    def __init__(self, connection, stream):
        self.connection, self.stream = connection, stream
        self.messages = None  # the wsproto connection; None before the handshake
        self.response = None  # headers of the response, for a client
        self.parts = []  # fragments of an incomplete message
        self.events = collections.deque()  # complete messages, Pong, CloseConnection
        self.unsent = bytearray()  # encoded messages that flow control does not allow yet
        self.end_requested = False  # the stream ends after unsent
        self.ended = False  # the peer has ended the stream

    def start_messages(self, extensions):
        kind = ConnectionType.CLIENT if self.connection.is_client else ConnectionType.SERVER
        self.messages = Connection(kind, extensions)

    def send(self, event):
        self.unsent += self.messages.send(event)
        self.connection.flush(self)

    def end(self):
        """Ends the stream after the unsent bytes."""
        self.end_requested = True
        self.connection.flush(self)

    def receive_data(self, data):
        """Decodes received data into events, and responds to pings."""
        self.messages.receive_data(data)
        for event in self.messages.events():
            if isinstance(event, wsproto.events.Ping):
                self.send(event.response())
            elif isinstance(event, wsproto.events.Message):
                self.parts.append(event.data)
                if event.message_finished:
                    self.events.append(type(event.data)().join(self.parts))
                    self.parts = []
            else:
                self.events.append(event)

    def next_event(self):
        """Waits for the next event. Returns None at the end of the stream."""
        while not self.events and not self.ended:
            self.connection.receive()
        return self.events.popleft() if self.events else None


class HTTP2Connection:
    """An HTTP/2 connection. A server passes each request to accept, and calls accept(socket, None) after data."""

    def __init__(self, conn, is_client, accept=None):
        self.conn, self.is_client, self.accept = conn, is_client, accept
        self.sockets = {}
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=is_client, header_encoding="utf-8"))
        if not is_client:
            values = {ENABLE_CONNECT: 1, h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 100}
            self.h2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.write_pending()

    def write_pending(self):
        """Writes the output of h2 to the socket."""
        self.conn.sendall(self.h2.data_to_send())

    def flush(self, socket):
        """Sends as many bytes as flow control allows, then the requested end of the stream."""
        while socket.unsent:
            allowed = min(self.h2.local_flow_control_window(socket.stream), self.h2.max_outbound_frame_size)
            if allowed <= 0:
                break
            self.h2.send_data(socket.stream, bytes(socket.unsent[:allowed]))
            del socket.unsent[:allowed]
        if socket.end_requested and not socket.unsent:
            socket.end_requested = False
            self.h2.end_stream(socket.stream)
        self.write_pending()

    def open(self, authority, path, fields):
        """Requests a WebSocket and waits for the response."""
        while not self.h2.remote_settings.get(ENABLE_CONNECT):
            self.receive()
        socket = Socket(self, self.h2.get_next_available_stream_id())
        self.sockets[socket.stream] = socket
        head = {":method": "CONNECT", ":protocol": "websocket", ":scheme": "http", ":path": path, ":authority": authority}
        self.h2.send_headers(socket.stream, [*head.items(), *fields.items()])
        self.write_pending()
        while socket.response is None:
            self.receive()
        return socket

    def receive(self):
        """Reads once, handles the events, and sends bytes that flow control now allows."""
        data = self.conn.recv(1 << 16)
        if not data:
            raise EOFError
        for event in self.h2.receive_data(data):
            self.handle_event(event)
        for socket in list(self.sockets.values()):
            self.flush(socket)

    def handle_event(self, event):
        socket = self.sockets.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.RequestReceived):
            socket = Socket(self, event.stream_id)
            self.sockets[event.stream_id] = socket
            self.accept(socket, dict(event.headers))
        elif isinstance(event, h2.events.ResponseReceived):
            socket.response = dict(event.headers)
            socket.start_messages(self.negotiated_extensions(socket.response))
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if event.data:
                socket.receive_data(event.data)
            if not self.is_client:
                self.accept(socket, None)
        elif isinstance(event, h2.events.StreamEnded):
            socket.ended = True
            if not self.is_client:
                self.sockets.pop(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            raise AssertionError(f"stream {event.stream_id} was reset: {event.error_code}")

    @staticmethod
    def negotiated_extensions(response):
        """Returns the extensions that the response accepts."""
        extension = PerMessageDeflate()
        accepted = response.get("sec-websocket-extensions")
        if accepted is None:
            return []
        extension.finalize(accepted)
        return [extension]


def close(code, reason=""):
    return wsproto.events.CloseConnection(code=code, reason=reason)
