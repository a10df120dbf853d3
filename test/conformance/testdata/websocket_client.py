"""Tests the WebSocket (RFC 6455) echo server at a URL. Prints the name of each check that passes.

Arguments: the URL, and the size of the large message in bytes."""

import asyncio
import os
import sys

import websockets


async def main(url, size):
    async with websockets.connect(url + "/a%2Fb?c", max_size=None, subprotocols=["other", "echo"]) as socket:
        assert socket.subprotocol == "echo", socket.subprotocol
        print("handshake")

        for text in ["hello", "", "gr\u00fc\u00df \U0001f600"]:
            await socket.send(text)
            got = await socket.recv()
            assert got == text, got
        print("text")

        every = bytes(range(256))
        await socket.send(every)
        assert await socket.recv() == every
        print("binary")

        await socket.send(part for part in ["one", "two", "three"])
        assert await socket.recv() == "onetwothree"
        print("fragments")

        await (await socket.ping(b"are you there"))
        print("ping")

        large = os.urandom(size)
        await socket.send(large)
        assert await socket.recv() == large
        print("large")

        many = [str(i) for i in range(1000)]
        for text in many:
            await socket.send(text)
        assert [await socket.recv() for _ in many] == many
        print("many")

        await socket.close(1000, "done")
        assert socket.close_code == 1000, socket.close_code
        print("close")

    async with websockets.connect(url + "/leave") as socket:
        try:
            await socket.recv()
        except websockets.ConnectionClosed as closed:
            assert (closed.rcvd.code, closed.rcvd.reason) == (4001, "leaving"), closed.rcvd
            print("closed by the server")

    sockets = await asyncio.gather(*(websockets.connect(url + "/") for _ in range(50)))
    for i, socket in enumerate(sockets):
        await socket.send(str(i))
    for i, socket in enumerate(sockets):
        assert await socket.recv() == str(i)
    await asyncio.gather(*(socket.close() for socket in sockets))
    print("fifty at once")


asyncio.run(asyncio.wait_for(main(sys.argv[1], int(sys.argv[2])), 25))
