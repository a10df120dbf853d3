package main

import (
	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// http2Rows lists the HTTP/2 loads. nginx forwards them to the origin over HTTP/1.1, except gRPC.
func http2Rows() []row {
	http2Sides := peer.Sides{ClientHTTP2: true, OriginHTTP2: true}
	grpc := peer.Sides{ClientHTTP2: true, OriginHTTP2: true, GRPC: true}
	return []row{
		{
			name: "h2-16x1", title: "HTTP/2, GET 1 KB, 16 connections with 1 stream each",
			http: http2Sides, load: load.HTTP2, body: 1 << 10, connections: 16, depth: 1,
			targets: []target{{cpuPerRequest, "nginx", 1.0}},
		},
		{
			name: "h2-16x16", title: "HTTP/2, GET 1 KB, 16 connections with 16 streams each",
			http: http2Sides, load: load.HTTP2, body: 1 << 10, connections: 16, depth: 16, halfLoad: true,
			targets: []target{{cpuPerRequest, "nginx", 1.0}, {cpuPerRequest, "haproxy", 2.0}},
		},
		{
			name: "grpc-16x1", title: "gRPC, unary calls of 1 KB, 16 connections with 1 stream each",
			http: grpc, load: load.GRPC, body: 1 << 10, connections: 16, depth: 1, optional: true,
		},
		{
			name: "grpc-16x16", title: "gRPC, unary calls of 1 KB, 16 connections with 16 streams each",
			http: grpc, load: load.GRPC, body: 1 << 10, connections: 16, depth: 16, halfLoad: true,
			targets: []target{
				{cpuPerRequest, "nginx", 0.9}, {cpuPerRequest, "haproxy", 1.5},
				{halfP99, "nginx", 1.0}, {halfP99, "haproxy", 1.0},
			},
		},
		{
			// The target is 80 % of the relay's throughput at equal CPU time.
			name: "grpc-stream", title: "gRPC, one bidirectional stream, messages of 1 MB, 4 in flight",
			http: grpc, load: load.GRPCStream, body: 1 << 20, connections: 1, depth: 4,
			targets: []target{{cpuPerRequest, "relay", 1 / 0.8}},
		},
		{
			name: "h2-to-h1-16x16", title: "HTTP/2 to HTTP/1.1, GET 1 KB, 16 connections with 16 streams each",
			http: peer.Sides{ClientHTTP2: true}, load: load.HTTP2, body: 1 << 10, connections: 16, depth: 16,
			targets: []target{{cpuPerRequest, "haproxy", 1.25}},
		},
		{
			name: "h1-to-h2-64", title: "HTTP/1.1 to HTTP/2, GET 1 KB, 64 connections",
			http: peer.Sides{OriginHTTP2: true}, request: get(1 << 10), body: 1 << 10, connections: 64,
			targets: []target{{cpuPerRequest, "haproxy", 1.25}},
		},
	}
}
