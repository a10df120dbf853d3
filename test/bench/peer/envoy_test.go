package peer

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/bench/certs"
	"github.com/weft-proxy/weft/test/bench/frame"
)

// bootstrapText returns the configuration file that a program gets.
func bootstrapText(t *testing.T, p Program, c Config) string {
	t.Helper()
	arguments, err := p.configure(c)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(arguments[len(arguments)-1])
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Errorf("%s: the file is not JSON:\n%s", p.Name, text)
	}
	return string(text)
}

func TestEnvoyConfigurations(t *testing.T) {
	for _, test := range []struct {
		name  string
		sides Sides
		has   []string
	}{
		{"HTTP/1.1", Sides{}, []string{"HttpConnectionManager", `"port_value": 20001`, `"port_value": 20003`}},
		{"HTTP/2 to HTTP/2", Sides{ClientHTTP2: true, OriginHTTP2: true}, []string{"http2_protocol_options"}},
		{"mutual TLS", Sides{MutualTLS: true}, []string{"DownstreamTlsContext", "require_client_certificate"}},
		{"sidecar", Sides{Sidecar: true}, []string{
			"DownstreamTlsContext", "HTTPFault", "LocalRateLimit", "HeaderMutation", "cors.v3.Cors", "policy-19", "/service-198/", "json_format", "outlier_detection",
		}},
	} {
		c := testConfig(t)
		c.HTTP, c.Certificates = test.sides, certs.Dir(c.Dir)
		text := bootstrapText(t, Envoy("envoy"), c)
		for _, want := range test.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the file has no %s:\n%.2000s", test.name, want, text)
			}
		}
		c.Dir = t.TempDir()
		if other := bootstrapText(t, WeftBootstrap("weft", "weft"), c); other != text {
			t.Errorf("%s: Weft and Envoy get different files", test.name)
		}
	}
}

func TestEnvoySupportsDubboOnly(t *testing.T) {
	for _, p := range frame.All() {
		c := testConfig(t)
		c.Protocol = p
		_, err := Envoy("envoy").configure(c)
		if errors.Is(err, ErrNotSupported) == (p.Name() == "dubbo") {
			t.Errorf("%s: configure returns %v", p.Name(), err)
		}
	}
}

func TestBootstrapScale(t *testing.T) {
	c := testConfig(t)
	file, target, err := BootstrapScale(c, Scale{Clusters: 40, Domains: 10, Routes: 200})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var root struct {
		StaticResources struct {
			Clusters []json.RawMessage `json:"clusters"`
		} `json:"static_resources"`
	}
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	if n := len(root.StaticResources.Clusters); n != 40 {
		t.Errorf("%d clusters, want 40", n)
	}
	if n := strings.Count(string(text), `"match"`); n != 200 {
		t.Errorf("%d routes, want 200", n)
	}
	if n := strings.Count(string(text), `"`+target+`"`); n != 1 {
		t.Errorf("%s is in %d routes, want 1", target, n)
	}
}
