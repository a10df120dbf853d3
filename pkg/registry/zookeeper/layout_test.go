package zookeeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		name, text string
		servers    []string
		chroot     string
	}{
		{"one server", "127.0.0.1:2181", []string{"127.0.0.1:2181"}, ""},
		{"several servers", "a:1, b:2,c:3", []string{"a:1", "b:2", "c:3"}, ""},
		{"chroot", "a:1,b:2/x/y", []string{"a:1", "b:2"}, "/x/y"},
		{"root as chroot", "a:1/", []string{"a:1"}, ""},
		{"no port", "a", []string{"a:2181"}, ""},
		{"IPv6", "[::1]:1", []string{"[::1]:1"}, ""},
		{"IPv6 without port", "[::1]", []string{"[::1]:2181"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			servers, chroot, err := parseAddress(tt.text)
			if err != nil || !slices.Equal(servers, tt.servers) || chroot != tt.chroot {
				t.Errorf("parseAddress(%q) = %q, %q, %v; want %q, %q", tt.text, servers, chroot, err, tt.servers, tt.chroot)
			}
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	tests := []struct {
		name, want string
		options    registry.Options
	}{
		{"no address", "not a valid host:port", registry.Options{}},
		{"no host", "not a valid host:port", registry.Options{Address: ":1"}},
		{"empty server", "not a valid host:port", registry.Options{Address: "a:1,"}},
		{"too many colons", "too many colons", registry.Options{Address: "::1"}},
		{"chroot with ..", `".." is not a valid name`, registry.Options{Address: "a:1/x/../y"}},
		{"chroot with an empty element", "the name is empty", registry.Options{Address: "a:1/x//y"}},
		{"root with ..", "the root", registry.Options{Address: "a:1", Root: "/.."}},
		{"username with a colon", "colon", registry.Options{Address: "a:1", Username: "a:b"}},
		{"negative session timeout", "-1s", registry.Options{Address: "a:1", SessionTimeout: -time.Second}},
		{"session timeout too short", "1ms", registry.Options{Address: "a:1", SessionTimeout: time.Millisecond}},
		{"session timeout too long", "2h0m0s", registry.Options{Address: "a:1", SessionTimeout: 2 * time.Hour}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.options); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestLayout(t *testing.T) {
	tests := []struct {
		name, chroot, root string
		got                func(layout) string
		want               string
	}{
		{"providers", "", "", func(l layout) string { return l.category("a.B$C", registry.Providers) }, "/dubbo/a.B%24C/providers"},
		{"routers below a chroot", "/x", "", func(l layout) string { return l.category("a.B", registry.Routers) }, "/x/dubbo/a.B/routers"},
		{"mapping below another root", "", "blue", func(l layout) string { return l.mapping("a.B") }, "/blue/mapping/a.B"},
		{"rules", "", "", func(l layout) string { return l.rules() }, "/dubbo/config/dubbo"},
		{"metadata", "", "", func(l layout) string { return l.metadata("shop", "abc") }, "/dubbo/metadata/shop/abc"},
		{"instances", "/x", "", func(l layout) string { return l.application("shop") }, "/x/services/shop"},
		{"instances of the default root with a slash", "", "dubbo/", func(l layout) string { return l.application("shop") }, "/services/shop"},
		{"instances of another root", "/x", "/blue", func(l layout) string { return l.application("shop") }, "/x/blue/shop"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := newLayout(tt.chroot, tt.root)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.got(l); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReadInstance(t *testing.T) {
	tests := []struct {
		name, text string
		want       registry.Instance
		wantErr    string
	}{
		{"only an address", `{"address":"h"}`, registry.Instance{Host: "h", Enabled: true}, ""},
		{"disabled", `{"name":"a","id":"i","address":"h","port":1,"enabled":false}`, registry.Instance{Application: "a", ID: "i", Host: "h", Port: 1}, ""},
		{"null port", `{"address":"h","port":null,"payload":null}`, registry.Instance{Host: "h", Enabled: true}, ""},
		{"no address", `{"id":"i"}`, registry.Instance{}, "no address"},
		{"port too large", `{"address":"h","port":65536}`, registry.Instance{}, "65536"},
		{"negative port", `{"address":"h","port":-1}`, registry.Instance{}, "-1"},
		{"not JSON", `10.0.0.1`, registry.Instance{}, "invalid instance"},
		{"empty", ``, registry.Instance{}, "invalid instance"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readInstance(tt.text)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("got %v, %v; want an error with %q", got, err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal := got.Application == tt.want.Application && got.ID == tt.want.ID && got.Host == tt.want.Host &&
				got.Port == tt.want.Port && got.Enabled == tt.want.Enabled && got.Healthy && got.Weight == 1
			if !equal {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestReadMapping(t *testing.T) {
	for text, want := range map[string][]string{
		"":             nil,
		"shop":         {"shop"},
		" a , b,,../c": {"a", "b"},
		"..":           nil,
		"a,b,a":        {"a", "b"},
	} {
		if got := readMapping(text); !slices.Equal(got, want) {
			t.Errorf("readMapping(%q) = %q, want %q", text, got, want)
		}
	}
	var mapping strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&mapping, "a%d,", i)
	}
	if got := readMapping(mapping.String()); len(got) != registry.MaxApplications || got[registry.MaxApplications-1] != fmt.Sprint("a", registry.MaxApplications-1) {
		t.Errorf("of 100,000 applications %d were returned, want the first %d", len(got), registry.MaxApplications)
	}
}

func TestBackoff(t *testing.T) {
	for failures, limit := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 400 * time.Millisecond, 4: 6400 * time.Millisecond, 7: 2 * time.Minute, 1000: 2 * time.Minute,
	} {
		for range 100 {
			if got := backoff(failures); got > limit || got < limit/2 {
				t.Errorf("backoff(%d) = %v, want %v to %v", failures, got, limit/2, limit)
			}
		}
	}
}

func FuzzInstance(f *testing.F) {
	f.Add(`{"name":"a","id":"h:1","address":"h","port":1,"payload":{"metadata":{"a":"b"}}}`)
	f.Add(`{"address":"h","port":1e9}`)
	f.Fuzz(func(t *testing.T, text string) {
		instance, err := readInstance(text)
		if (instance == nil) == (err == nil) {
			t.Errorf("readInstance(%q) = %v, %v, want either an instance or an error", text, instance, err)
		}
		if instance != nil && instance.Host == "" {
			t.Errorf("readInstance(%q) has no host", text)
		}
	})
}
