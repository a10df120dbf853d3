package zookeeper_test

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

// TestManyServices makes 1,000 registrations and 2,000 subscriptions, half of them to the
// registered services, and loses the session.
func TestManyServices(t *testing.T) {
	const published = 1000
	proxy := startProxy(t, server.Start(t, server.Options{}).Address())
	session := open(t, registry.Options{Address: proxy.address()})
	subscribers := session.Bulk(published, 2000)

	before := session.State().SessionID
	start := time.Now()
	proxy.expire()
	session.Await("another session", func(s registry.State) bool { return s.Connected && s.SessionID != before })
	admin := dialZK(t, proxy.server)
	for i := range published {
		admin.children("/dubbo/"+registrytest.BulkService(i)+"/providers", 1)
	}
	t.Logf("all registrations again after %v", time.Since(start))
	subscribers[7].AwaitLatest("the provider", registrytest.At(registrytest.BulkAddress))
	session.AddBulkProvider(subscribers)
}
