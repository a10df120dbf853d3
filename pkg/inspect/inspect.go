// Package inspect defines the views of Weft: the structs that the admin port and the commands
// encode and that their clients decode.
//
//	Sources        what the views are built from                  sources.go
//	  │
//	ConfigDump     configuration; result of a check or a reload   config.go
//	EnvoyClusters  clusters in Envoy's format                     envoy_clusters.go
//	EnvoyCerts     certificates in Envoy's format                 certs.go
//	EnvoyMemory    memory in Envoy's format                       memory.go
//	EnvoyRuntime   runtime in Envoy's format                      runtime.go
//	EnvoyInitDump  waiting listeners in Envoy's format            initdump.go
//	Stat           metrics under Envoy's names                    stats.go, stat_names.go
//	ServerInfo     version, state and uptime                      process.go
//	XDS            control planes                                 xds.go
//	  │
//	Endpoints      the pages of the admin port                    endpoints.go, stats_filter.go
//	XDSText …      the views as text for people                   xds_text.go, services_text.go
//
// The views of clusters, listeners, routes, overload, Dubbo services and explanations are the
// status types of the packages that own the state: upstream.ClusterStatus, proxy.ListenerStatus,
// proxy.RouteTableStatus, overload.Status, dubbo.Status and explain.Result.
package inspect
