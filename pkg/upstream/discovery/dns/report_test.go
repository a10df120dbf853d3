package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// failingResolver is a Resolver whose server does not respond. Each error names the local port of
// the query, as errors of package net do.
type failingResolver struct{ lookups atomic.Int64 }

func (r *failingResolver) Lookup(_ context.Context, _ Family, name string) ([]netip.Addr, time.Duration, error) {
	return nil, 0, &net.DNSError{
		Err:  fmt.Sprintf("read udp 192.0.2.9:%d->192.0.2.53:53: i/o timeout", 40000+r.lookups.Add(1)),
		Name: name, Server: "192.0.2.53:53", IsTimeout: true, IsTemporary: true,
	}
}

// TestOutageIsReportedOnce verifies that an outage is reported once, although every lookup fails.
func TestOutageIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resolver := new(failingResolver)
		d := New(Options{Resolver: func(*config.DNS) Resolver { return resolver }})
		defer d.Close()
		var updates updateRecorder
		defer d.Watch(strictCluster(time.Second, "a:80"), updates.update)()
		advanceClock(time.Minute)
		if n := resolver.lookups.Load(); n < 50 {
			t.Fatalf("%d lookups in a minute, want at least 50", n)
		}
		updates.wantUpdates(t, "error: resolving a: lookup a on 192.0.2.53:53: read udp 192.0.2.9:40001->192.0.2.53:53: i/o timeout")
	})
}
