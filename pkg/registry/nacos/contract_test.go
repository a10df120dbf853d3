//go:build !race

// These tests use real servers, which start slowly and do not exercise races. Under the
// race detector, only the tests with the fake server run (fake_test.go).

package nacos_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/nacos"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	server "github.com/weft-proxy/weft/test/nacos"
)

func TestMain(m *testing.M) { os.Exit(server.Main(m, "../../..")) }

// TestServer runs subtests on one server, which starts slowly. The subtests use different
// namespaces, groups or services.
func TestServer(t *testing.T) {
	s := server.Start(t, server.Options{})
	for name, run := range map[string]func(*testing.T, *server.Server){
		"contract":                      func(t *testing.T, s *server.Server) { runContract(t, s, registry.Options{}) },
		"interoperability with Dubbo":   testDubboRegistries,
		"killed process":                testKilledProcess,
		"rules, instances and metadata": testConfigurations,
		"2,000 services":                testManyServices,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, s)
		})
	}
}

func TestContractWithUsers(t *testing.T) {
	runContract(t, server.Start(t, server.Options{Auth: true}), registry.Options{Username: server.User, Password: server.Password})
}

// runContract runs the tests that every registry must pass.
func runContract(t *testing.T, s *server.Server, options registry.Options) {
	options.Address = s.Address()
	var tests atomic.Int64
	registrytest.Run(t, registrytest.Fixture{
		Open: nacos.New,
		Options: func(*testing.T) registry.Options {
			o := options
			o.Root = fmt.Sprintf("test-%d", tests.Add(1)) // a namespace, because groups share the mapping
			return o
		},
	})
}
