package health

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

// fakeHost is a Host that implements only Authority.
type fakeHost struct{ Host }

func (fakeHost) Authority() string { return "10.0.0.1:80" }

// TestCheckRequestHeaders verifies that the request of a check has the configured domain as its
// authority and the mutated headers, and that removals precede additions.
func TestCheckRequestHeaders(t *testing.T) {
	for name, test := range map[string]struct {
		cfg       config.HTTPCheck
		authority string
		want      string
	}{
		"defaults":  {config.HTTPCheck{}, "10.0.0.1:80", "User-Agent: weft-health-check"},
		"authority": {config.HTTPCheck{Authority: "shop"}, "shop", "User-Agent: weft-health-check"},
		"added": {config.HTTPCheck{HeaderMutation: config.HeaderMutation{Add: []config.HeaderValue{
			{Name: "authorization", Value: "Basic abc"}, {Name: "x-a", Value: "1", Append: true}, {Name: "x-a", Value: "2", Append: true},
		}}}, "10.0.0.1:80", "User-Agent: weft-health-check, authorization: Basic abc, x-a: 1, x-a: 2"},
		"replaced": {config.HTTPCheck{HeaderMutation: config.HeaderMutation{Add: []config.HeaderValue{{Name: "user-agent", Value: "probe"}}}}, "10.0.0.1:80", "user-agent: probe"},
		"removed":  {config.HTTPCheck{HeaderMutation: config.HeaderMutation{Remove: []string{"user-agent"}}}, "10.0.0.1:80", ""},
		"removed, then added": {config.HTTPCheck{HeaderMutation: config.HeaderMutation{Remove: []string{"user-agent"}, Add: []config.HeaderValue{
			{Name: "user-agent", Value: "a", If: config.AddIfPresent}, {Name: "x-b", Value: "b", If: config.AddIfAbsent}, {Name: "x-b", Value: "c", If: config.AddIfAbsent},
		}}}, "10.0.0.1:80", "x-b: b"},
	} {
		x := newExchange(fakeHost{}, &test.cfg, "GET", "/", time.Time{})
		applyMutation(&x.Request.Header, &test.cfg.HeaderMutation)
		var got []string
		for name, value := range x.Request.Header.All() {
			got = append(got, name+": "+value)
		}
		if text := strings.Join(got, ", "); !strings.EqualFold(text, test.want) || x.Request.Authority != test.authority {
			t.Errorf("%s: request to %q with %q, want %q with %q", name, x.Request.Authority, text, test.authority, test.want)
		}
	}
}
