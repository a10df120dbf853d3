//go:build !race

// Real servers take a minute to start and have no part in races: the race detector looks on
// while the fake one serves (loss_test.go).

package nacos_test

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo/registry"
	server "github.com/weft-proxy/weft/test/nacos"
)

// manyServices has 1,000 registrations and 2,000 subscriptions, half of them of what
// it registers.
func manyServices(t *testing.T, s *server.Server) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	p := open(t, registry.Options{Address: s.Address(), Root: "public/many"})
	p.CrowdGrows(p.Bulk(1000, 2000))
}
