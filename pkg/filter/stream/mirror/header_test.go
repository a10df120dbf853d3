package mirror

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
)

// TestClusterHeader verifies which clusters get copies if headers name them.
func TestClusterHeader(t *testing.T) {
	for _, test := range []struct {
		name, settings string
		headers        []string
		want           []string
	}{
		{"a header", `{"cluster_header": "x-shadow"}`, []string{"X-Shadow", "a"}, []string{"a"}},
		{"the first of two values", `{"cluster_header": "x-shadow"}`, []string{"x-shadow", "a", "x-shadow", "b"}, []string{"a"}},
		{"no header", `{"cluster_header": "x-shadow"}`, nil, nil},
		{"an empty value", `{"cluster_header": "x-shadow"}`, []string{"x-shadow", ""}, nil},
		{"the authority", `{"cluster_header": ":authority"}`, nil, []string{"shop.test"}},
		{"host", `{"cluster_header": "Host"}`, nil, []string{"shop.test"}},
		{"the method", `{"cluster_header": ":method"}`, nil, []string{"POST"}},
		{"an unknown pseudo-header", `{"cluster_header": ":x"}`, nil, nil},
		{"a header and a cluster", `{"cluster_header": "x-shadow", "more": [{"cluster": "b"}]}`, []string{"x-shadow", "a"}, []string{"a", "b"}},
		{"a cluster and a missing header", `{"cluster": "b", "more": [{"cluster_header": "x-shadow"}]}`, nil, []string{"b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := filtertest.Decode(t, Factory(), filtertest.Settings(test.settings)).(*Config)
			m := mirror{config: *cfg, targets: targetsOf(cfg), randomPercent: func() float64 { return 0 }}
			x := newPOST("", true)
			x.Request.Authority = "shop.test"
			for i := 0; i < len(test.headers); i += 2 {
				x.Request.Header.Add(test.headers[i], test.headers[i+1])
			}
			var got []string
			for _, sampled := range m.sampleTargets(x) {
				got = append(got, sampled.callTarget.Cluster)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("clusters = %q, want %q", got, test.want)
			}
		})
	}
}

func TestClustersAndHeadersExclude(t *testing.T) {
	for want, c := range map[string]Config{
		"cluster and cluster_header are mutually exclusive":              {Cluster: "a", ClusterHeader: "b", Amplification: 1},
		"more[0]: exactly one of cluster and cluster_header is required": {Cluster: "a", Amplification: 1, Additional: []AdditionalCluster{{}}},
		"more[1]: exactly one of cluster and cluster_header is required": {Cluster: "a", Amplification: 1, Additional: []AdditionalCluster{{Cluster: "c"}, {Cluster: "a", ClusterHeader: "b"}}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %s", c, err, want)
		}
	}
}
