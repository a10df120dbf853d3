"""A WebSocket (RFC 6455) echo server. Prints its port, and ends when standard input ends."""

import asyncio
import sys

import websockets


async def echo(socket):
    if socket.path == "/leave":
        await socket.close(4001, "leaving")
        return
    async for message in socket:
        await socket.send(message)


async def main():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None, subprotocols=["echo"]) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
