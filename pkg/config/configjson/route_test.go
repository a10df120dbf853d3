package configjson

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/router"
)

// TestRedirectCodes verifies that response_code, and so the reference and the schema, accept the
// statuses with which the router compiles a redirect, and no others.
func TestRedirectCodes(t *testing.T) {
	keys := document.Keys(redirectJSON{})
	key := keys[slices.IndexFunc(keys, func(k document.Key) bool { return k.Name == "response_code" })]
	for code := 100; code < 600; code++ {
		_, err := router.Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{
			Domains: []string{"*"}, Routes: []*config.Route{{Redirect: &config.Redirect{Code: code}}},
		}}})
		if listed := slices.Contains(key.OneOf, int64(code)); listed != (err == nil) {
			t.Errorf("response_code accepts %d: %t; the router returns %v for it", code, listed, err)
		}
	}
}
