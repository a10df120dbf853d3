package nacos_test

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/registry/nacos"
	"github.com/weft-proxy/weft/pkg/registry/registrytest"
)

// open opens a session until the end of the test.
func open(t testing.TB, options registry.Options) *registrytest.Session {
	t.Helper()
	return registrytest.Open(t, nacos.New, options)
}

// isDisconnected is the condition that the server does not respond.
func isDisconnected(s registry.State) bool { return !s.Connected && s.LastError != "" }
