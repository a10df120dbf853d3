//go:build !race

// These tests use real servers, which start slowly and do not exercise races. Under the
// race detector, only the tests with the fake server run (fake_test.go).

package nacos_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/nacos"
)

// testDubboRegistries verifies that Dubbo's registry clients and this package find the providers of
// each other: Dubbo 2.7 over Nacos's HTTP API, Dubbo 3 over gRPC.
func testDubboRegistries(t *testing.T, s *server.Server) {
	for _, version := range []string{"dubbo27", "dubbo3"} {
		t.Run(version, func(t *testing.T) {
			peer := s.StartPeer(t, version, version)
			session := open(t, registry.Options{Address: s.Address(), Root: "public/" + version})
			for _, iface := range []string{"com.example.User", "com.example.Outer$User"} {
				testInterop(t, peer, session, iface)
			}
		})
	}
}

func testInterop(t *testing.T, peer *server.Peer, session *registrytest.Session, iface string) {
	sub := session.NewSubscriber(registry.Service{Interface: iface, Version: "1.0.0", Group: "g"})
	sub.Await("no providers", registrytest.Empty)

	text := "dubbo://10.0.0.1:20880/" + iface + "?anyhost=true&application=a&group=g&interface=" + iface +
		"&methods=get,set&side=provider&timestamp=1&version=1.0.0&weight=7"
	peer.Send("register", text)
	snap := sub.Await("the provider of the peer", registrytest.At("10.0.0.1:20880"))
	if got := snap.Providers[0].String(); got != text {
		t.Errorf("%s was read as\n%s", text, got)
	}

	provider := registrytest.Provider(t, iface, "10.0.0.2:20881", "group=g", "version=1.0.0", "application=b", "methods=get")
	session.MustRegister(provider)
	// Dubbo 2.7 reads the list before it listens for changes: it misses a change in between.
	sub.Await("both providers", registrytest.At("10.0.0.1:20880", "10.0.0.2:20881"))
	peer.Send("subscribe", "consumer://10.0.0.3/"+iface+"?category=providers,configurators,routers&group=g&interface="+iface+"&side=consumer&version=1.0.0")
	peer.AwaitProviders("both providers", func(urls []string) bool {
		return len(urls) == 2 && slices.ContainsFunc(urls, func(u string) bool {
			return strings.HasPrefix(u, "dubbo://10.0.0.2:20881/"+iface+"?") && strings.Contains(u, "version=1.0.0")
		})
	})
	if err := session.Unregister(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	peer.AwaitProviders("only the provider of the peer", func(urls []string) bool {
		return len(urls) == 1 && strings.Contains(urls[0], "10.0.0.1:20880/"+iface+"?")
	})
	peer.Send("unregister", text)
	sub.Await("no providers", registrytest.Empty)
}
