package zookeeper_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

// TestRandomLossesConverge has two sessions register and unregister at random, while one
// of them loses connections and sessions. It verifies that both see the final state.
func TestRandomLossesConverge(t *testing.T) {
	t.Parallel()
	const rounds, steps = 6, 25
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	w := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	c := newSessionPair(t, brief, w.server, w.address())
	there := map[string]bool{addressA: true, addressB: true}
	for round := range rounds {
		for range steps {
			switch n := chance.IntN(20); {
			case n == 0:
				w.expire()
			case n < 3:
				w.closeConn()
			default:
				who, address := c.a, fmt.Sprintf("10.0.1.%d:1", chance.IntN(10))
				if chance.IntN(2) == 0 {
					who, address = c.b, fmt.Sprintf("10.0.2.%d:1", chance.IntN(10))
				}
				ask, u := who.Register, registrytest.Provider(t, user, address)
				if chance.IntN(3) == 0 {
					ask = who.Unregister
					delete(there, address)
				} else {
					there[address] = true
				}
				if err := ask(t.Context(), u); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := registrytest.At(slices.Collect(maps.Keys(there))...)
		c.seenByA.Await(fmt.Sprintf("what is wished for in round %d", round), want)
		c.seenByB.Await(fmt.Sprintf("what is wished for in round %d", round), want)
	}
	t.Logf("missed changes of watches: %d", c.b.log.count("missed a change"))
}

func TestServersAreReachedByTLS(t *testing.T) {
	t.Parallel()
	// The certificate of another server, for 127.0.0.1.
	page := httptest.NewTLSServer(nil)
	page.Close()
	w := startProxy(t, server.Start(t, server.Options{}).Address())
	w.secure(page.TLS)
	trust := x509.NewCertPool()
	trust.AddCert(page.Certificate())

	known := open(t, registry.Options{Address: w.address(), TLS: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}})
	known.MustRegister(registrytest.Provider(t, user, addressA))
	dialZK(t, w.server).children("/dubbo/"+user+"/providers", 1)

	stranger := open(t, registry.Options{Address: w.address(), TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	s := stranger.Await("told why", func(s registry.State) bool { return strings.Contains(s.LastError, "certificate") })
	if s.Connected {
		t.Errorf("it is connected to a server without a trusted certificate: %+v", s)
	}
}
