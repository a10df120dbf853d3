package main

import (
	"bytes"

	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// tlsRows lists the loads with TLS from the client and plaintext to the origin. Both sides present
// a certificate, and no session is resumed.
func tlsRows() []row {
	const limit = 1.15
	mutual := peer.Sides{MutualTLS: true}
	fresh := bytes.Replace(get(1<<10), []byte("\r\n\r\n"), []byte("\r\nConnection: close\r\n\r\n"), 1)
	return []row{
		{
			name: "mtls-fresh-16", title: "Mutual TLS, a connection and a full handshake for each GET of 1 KB, 16 concurrent",
			http: mutual, load: load.HTTPSFresh, request: fresh, body: 1 << 10, connections: 16, depth: 1,
			targets: []target{{cpuPerRequest, "nginx", limit}},
		},
		{
			name: "mtls-1k-64", title: "Mutual TLS, GET 1 KB, 64 connections",
			http: mutual, load: load.HTTPS, request: get(1 << 10), body: 1 << 10, connections: 64, depth: 1,
			targets: []target{{cpuPerRequest, "nginx", limit}},
		},
		{
			name: "mtls-64k-64", title: "Mutual TLS, GET 64 KB, 64 connections",
			http: mutual, load: load.HTTPS, request: get(64 << 10), body: 64 << 10, connections: 64, depth: 1,
			targets: []target{{cpuPerRequest, "nginx", limit}},
		},
	}
}
