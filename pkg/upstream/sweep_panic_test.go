package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestSweepRecoversPanic verifies that a sweep recovers a panic of a connection in Usable or Close:
// it removes the connection, the pool serves the next exchange, and the timer continues.
func TestSweepRecoversPanic(t *testing.T) {
	for _, mode := range []config.PoolMode{config.PingPong, config.Multiplex} {
		for _, point := range []string{"Usable", "Close"} {
			t.Run(point+", "+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &panicInjector{fakeMuxConnector: newFakeMuxConnector()}
					s, c := f.cluster(t, mode)
					defer s.Close()
					downstream := newFakeDownstreamConn()
					defer downstream.end()
					if err := f.serve(c, downstream); err != nil {
						t.Fatal(err)
					}
					f.point.Store(&point)
					time.Sleep(2 * time.Minute) // beyond the idle timeout
					synctest.Wait()
					if got := f.hits.Load(); got != 1 {
						t.Fatalf("%d panics at %s, want 1", got, point)
					}
					b := c.Breaker(config.DefaultPriority)
					if slots, open := b.Counts().Connections, f.fakeMuxConnector.numOpen(); slots != 0 || open != 0 {
						t.Errorf("after the sweep %d slots are taken and %d connections are open, want 0", slots, open)
					}
					if err := f.serve(c, downstream); err != nil {
						t.Errorf("the next exchange failed: %v; want no error", err)
					}
				})
			})
		}
	}
}
