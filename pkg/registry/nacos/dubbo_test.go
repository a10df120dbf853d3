//go:build !race

// These tests use real servers, which take a minute to start and do not exercise races. Under the
// race detector the fake server is used instead (loss_test.go).

package nacos_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/nacos"
)

// testDubboRegistries verifies that Dubbo's own registry clients and this package find what the other
// registers: 2.7 over Nacos's HTTP API, 3 over gRPC.
func testDubboRegistries(t *testing.T, s *server.Server) {
	for _, kind := range []string{"dubbo27", "dubbo3"} {
		t.Run(kind, func(t *testing.T) {
			theirs := s.StartPeer(t, kind, kind)
			ours := open(t, registry.Options{Address: s.Address(), Root: "public/" + kind})
			for _, iface := range []string{"com.example.User", "com.example.Outer$User"} {
				testInterop(t, theirs, ours, iface)
			}
		})
	}
}

func testInterop(t *testing.T, theirs *server.Peer, ours *registrytest.Session, iface string) {
	follow := ours.NewSubscriber(registry.Service{Interface: iface, Version: "1.0.0", Group: "g"})
	follow.Await("nobody", registrytest.Empty)

	text := "dubbo://10.0.0.1:20880/" + iface + "?anyhost=true&application=a&group=g&interface=" + iface +
		"&methods=get,set&side=provider&timestamp=1&version=1.0.0&weight=7"
	theirs.Send("register", text)
	v := follow.Await("their provider", registrytest.At("10.0.0.1:20880"))
	if got := v.Providers[0].String(); got != text {
		t.Errorf("%s is read as\n%s", text, got)
	}

	mine := registrytest.Provider(t, iface, "10.0.0.2:20881", "group=g", "version=1.0.0", "application=b", "methods=get")
	ours.MustRegister(mine)
	// Dubbo 2.7 reads the list before it listens for changes: it misses a change in between.
	follow.Await("both providers", registrytest.At("10.0.0.1:20880", "10.0.0.2:20881"))
	theirs.Send("subscribe", "consumer://10.0.0.3/"+iface+"?category=providers,configurators,routers&group=g&interface="+iface+"&side=consumer&version=1.0.0")
	theirs.AwaitProviders("both providers", func(urls []string) bool {
		return len(urls) == 2 && slices.ContainsFunc(urls, func(u string) bool {
			return strings.HasPrefix(u, "dubbo://10.0.0.2:20881/"+iface+"?") && strings.Contains(u, "version=1.0.0")
		})
	})
	if err := ours.Unregister(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	theirs.AwaitProviders("their own provider", func(urls []string) bool {
		return len(urls) == 1 && strings.Contains(urls[0], "10.0.0.1:20880/"+iface+"?")
	})
	theirs.Send("unregister", text)
	follow.Await("nobody", registrytest.Empty)
}
