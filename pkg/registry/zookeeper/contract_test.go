package zookeeper_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
	"github.com/weft-proxy/weft/pkg/registry/zookeeper"
	server "github.com/weft-proxy/weft/test/zookeeper"
)

// TestContract runs the tests that every registry must pass, on one server and on an ensemble.
func TestContract(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(*testing.T) (address string)
	}{
		{"standalone server", func(t *testing.T) string { return server.Start(t, server.Options{Tick: time.Second}).Address() }},
		{"ensemble", func(t *testing.T) string { return server.StartEnsemble(t, server.Options{Tick: time.Second}).Address() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := tt.start(t)
			var tests atomic.Int64
			registrytest.Run(t, registrytest.Fixture{
				Open: zookeeper.New,
				Options: func(*testing.T) registry.Options {
					return registry.Options{Address: fmt.Sprintf("%s/test%d", address, tests.Add(1))}
				},
			})
		})
	}
}
