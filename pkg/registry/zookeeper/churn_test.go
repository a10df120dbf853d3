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

// TestRandomLossesConverge verifies that two sessions that register and unregister at random both
// see the final state, although one of them loses connections and sessions.
func TestRandomLossesConverge(t *testing.T) {
	t.Parallel()
	const rounds, steps = 6, 25
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	proxy := startProxy(t, server.Start(t, server.Options{Tick: time.Second}).Address())
	pair := newSessionPair(t, shortSession, proxy.server, proxy.address())
	registered := map[string]bool{addressA: true, addressB: true}
	for round := range rounds {
		for range steps {
			switch n := rng.IntN(20); {
			case n == 0:
				proxy.expire()
			case n < 3:
				proxy.closeConns()
			default:
				session, address := pair.a, fmt.Sprintf("10.0.1.%d:1", rng.IntN(10))
				if rng.IntN(2) == 0 {
					session, address = pair.b, fmt.Sprintf("10.0.2.%d:1", rng.IntN(10))
				}
				request, u := session.Register, registrytest.Provider(t, user, address)
				if rng.IntN(3) == 0 {
					request = session.Unregister
					delete(registered, address)
				} else {
					registered[address] = true
				}
				if err := request(t.Context(), u); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := registrytest.At(slices.Collect(maps.Keys(registered))...)
		pair.seenByA.Await(fmt.Sprintf("the registered providers of round %d", round), want)
		pair.seenByB.Await(fmt.Sprintf("the registered providers of round %d", round), want)
	}
	t.Logf("changes that watches missed: %d", pair.b.log.count("missed a change"))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	// The certificate of another server, for 127.0.0.1.
	tlsServer := httptest.NewTLSServer(nil)
	tlsServer.Close()
	proxy := startProxy(t, server.Start(t, server.Options{}).Address())
	proxy.requireTLS(tlsServer.TLS)
	roots := x509.NewCertPool()
	roots.AddCert(tlsServer.Certificate())

	trusting := open(t, registry.Options{Address: proxy.address(), TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	trusting.MustRegister(registrytest.Provider(t, user, addressA))
	dialZK(t, proxy.server).children("/dubbo/"+user+"/providers", 1)

	distrusting := open(t, registry.Options{Address: proxy.address(), TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	s := distrusting.Await("a certificate error", func(s registry.State) bool { return strings.Contains(s.LastError, "certificate") })
	if s.Connected {
		t.Errorf("connected to a server without a trusted certificate: %+v", s)
	}
}
