//go:build !race

// These tests use real servers, which start slowly and do not exercise races. Under the
// race detector, only the tests with the fake server run (fake_test.go).

package nacos_test

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
	server "github.com/weft-proxy/weft/test/nacos"
)

// testManyServices makes 1,000 registrations and 2,000 subscriptions, half of them to the
// registered services.
func testManyServices(t *testing.T, s *server.Server) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	session := open(t, registry.Options{Address: s.Address(), Root: "public/many"})
	session.AddBulkProvider(session.Bulk(1000, 2000))
}
