package zookeeper_test

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

// TestManyServices makes 1,000 registrations and 2,000 subscriptions, half of them to the services
// that it registers, and loses the session.
func TestManyServices(t *testing.T) {
	const published = 1000
	w := startProxy(t, server.Start(t, server.Options{}).Address())
	p := open(t, registry.Options{Address: w.address()})
	followers := p.Bulk(published, 2000)

	before := p.State().Session
	begin := time.Now()
	w.expire()
	p.Await("another session", func(s registry.State) bool { return s.Connected && s.Session != before })
	judge := dialZK(t, w.server)
	for i := range published {
		judge.children("/dubbo/"+registrytest.BulkService(i)+"/providers", 1)
	}
	t.Logf("all registrations again after %v", time.Since(begin))
	followers[7].AwaitLatest("the provider", registrytest.At(registrytest.BulkAddress))
	p.AddBulkProvider(followers)
}
