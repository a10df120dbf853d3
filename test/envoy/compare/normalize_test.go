package compare

import (
	"maps"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

func TestNormalizerText(t *testing.T) {
	n := NewNormalizer(map[string]int{"vhost.1": 32010, "cors.1": 32011}, map[string]int{"o1": 32100, "h1": 32101})
	for text, want := range map[string]string{
		"127.0.0.1:32010":                     "127.0.0.1:<listener>",
		"http://a.test:32011/x":               "http://a.test:<listener>/x",
		"127.0.0.1:32100 and 127.0.0.1:32101": "127.0.0.1:<o1> and 127.0.0.1:<h1>",
		"127.0.0.1:41234":                     "127.0.0.1:<port>",
		"an unknown port: 32500":              "an unknown port: 32500",
		"123210":                              "123210",
		"5000 bytes":                          "5000 bytes",
		"6ba7b810-9dad-41d1-80b4-00c04fd430c8 and abc": "<uuid> and abc",
		"6ba7b810-9dad-41d1-80b4":                      "6ba7b810-9dad-41d1-80b4",
	} {
		if got := n.Text(text); got != want {
			t.Errorf("Text(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestNormalizerFields(t *testing.T) {
	got := NewNormalizer(nil, nil).fields([]wire.Field{
		{Name: "Set-Cookie", Value: "a=1"},
		{Name: "x-envoy-upstream-service-time", Value: "17"},
		{Name: "set-cookie", Value: "b=2"},
		{Name: "Date", Value: "now"},
	}, "date")
	want := map[string][]string{"set-cookie": {"a=1", "b=2"}, "x-envoy-upstream-service-time": {"<ms>"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("fields = %q, want %q", got, want)
	}
}
