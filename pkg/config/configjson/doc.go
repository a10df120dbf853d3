// Package configjson reads and checks config.json, and builds the model of package config from it.
//
// # How a document becomes the model
//
// Load, Open or Parse (load.go) reads the file. Package document parses it into a tree of nodes and
// decodes the tree into structs, whose field tags define every key. The names of these structs end
// in JSON. The reader of each section converts its structs to the model and checks keys against
// each other. One report (input.go) collects all problems with their positions. The package returns
// a snapshot only if the report contains no error.
//
// A section is one file, or a few files with a common prefix: first its keys, then its reader. The
// reader type (root.go) runs the readers of the sections in this order, because later ones refer to
// the results of earlier ones:
//
//	clusterReader   cluster*.go, socket.go       clusters, which form a clusterSet
//	adminReader     admin.go                     the admin port
//	metricsReader   metrics.go                   metrics export
//	xdsReader       xds.go, envoy.go             control planes, and Envoy's bootstrap
//	dubboReader     dubbo.go                     the Dubbo registry
//	overloadReader  overload.go                  overload actions
//	routeReader     route*.go                    route tables
//	listenerReader  listener*.go                 listeners
//	                filter_chain.go              their filter chains, with the network filters
//	                proxy.go, tcpproxy.go, udpproxy.go
//	routeChecker    route_check.go               route tables against listeners and clusters
//	                route_outlier.go, route_keepalive.go
//	linter          lint.go                      probable mistakes, if Options.Lint is set
//
// Two readers serve several sections: tlsReader (tls.go) reads every tls_context, and filterReader
// (stream_filter.go, connection_filter.go) reads the settings whose keys a filter defines.
//
// # What a build supports
//
// The argument Capabilities lists the supported features. A protocol, filter, policy or cluster
// type that the schema defines and Capabilities does not list is rejected as not supported yet. One
// that the schema does not define is rejected with the nearest known name. Nothing is skipped
// silently.
//
// # Cost
//
// Reading, checking and converting a file of 13.1 MB with 10,000 clusters, 20,000 hosts and 50,000
// routes allocates 161 MB, garbage included (BenchmarkBigFile). TestBigFileMemory limits this.
package configjson
