package main

import (
	"github.com/weft-proxy/weft/test/bench/load"
	"github.com/weft-proxy/weft/test/bench/peer"
)

// sidecarRow compares Weft with Envoy if both read one bootstrap file with the features of a sidecar.
func sidecarRow() row {
	return row{
		name: "sidecar-64", title: "Full sidecar from one bootstrap file: mutual TLS, RBAC of 20 policies, JSON access log, header mutation, " +
			"local rate limit, CORS, fault, outlier detection, 200 routes; GET 1 KB, 64 connections",
		http: peer.Sides{Sidecar: true}, load: load.HTTPS, request: get(1 << 10), body: 1 << 10, connections: 64, depth: 1, halfLoad: true,
		targets: []target{{cpuPerRequest, "envoy", 0.33}, {halfP99, "envoy", 1.1}},
	}
}
