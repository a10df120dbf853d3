// Package service contains the services that every exchange passes between the engine that received
// it and the cluster that serves it: local replies for errors, header fields of an intermediary,
// routing, timeouts, retries and hedges. Each is a protocol.Service; package proxy composes them:
//
//	Respond                respond.go            errors and panics become local replies
//	Shed                   shed.go               rejects requests while the process is overloaded
//	NormalizeTargets       normalize_target.go   paths and hosts that mean the same become equal
//	Forwarded              forwarded*.go         Via, X-Forwarded-*, Max-Forwards
//	                       sanitize_headers.go   removes what clients may not send
//	Router                 router.go             the route of the exchange
//	Forward, Reply         forward.go            rewrites of the route, or its local reply
//	Timeout                timeout.go            the deadline of the exchange
//	Retry                  retry*.go             sends again what failed
//	Hedge                  hedge*.go             sends to several hosts concurrently
//	DynamicCluster, ...    cluster_target.go     the cluster that the route chose
package service
