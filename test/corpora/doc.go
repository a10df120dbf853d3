// Package corpora measures how many public configuration files Weft takes: Envoy's configurations
// and examples, Envoy Gateway's golden xDS, the bootstraps of Istio and Contour, and MOSN's
// examples.
//
//	find.go     finds the configurations in checkouts of the projects
//	gateway.go  makes a bootstrap of the resources of a control plane
//	files.go    provides the certificates and other files that configurations refer to
//	rewrite.go  replaces addresses, so that a configuration can run on this machine
//	probe.go    derives requests from the routes of a configuration
//	report.go   counts, and groups the reasons of rejections
//
// For each configuration, TestCorpora runs "weft check" and "envoy --mode validate". It starts what
// both accept, sends the same requests to both, and compares the responses and what the origin
// receives. The checkouts are not part of this repository: test/scripts/corpora fetches them.
package corpora
