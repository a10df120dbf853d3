// Package service contains the services between the engine that receives an exchange and the
// cluster that serves it: local replies for errors, headers of an intermediary, routing, timeouts,
// retries and hedges. Each is a protocol.Service; package proxy composes them:
//
//	Respond                respond.go            errors and panics become local replies
//	Shed                   shed.go               rejects requests while the process is overloaded
//	NormalizeTargets       normalize_target.go   normalizes the paths and authorities of requests
//	Forwarded              forwarded*.go         Via, X-Forwarded-*, Max-Forwards
//	                       sanitize_headers.go   removes headers that clients may not send
//	Router                 router.go             the route of the exchange
//	Forward, Reply         forward.go            rewrites of the route, or its local reply
//	Timeout                timeout.go            the deadline of the exchange
//	Retry                  retry*.go             retries failed requests
//	Hedge                  hedge*.go             sends to several hosts concurrently
//	DynamicCluster, ...    cluster_target.go     the cluster that the route chose
package service
