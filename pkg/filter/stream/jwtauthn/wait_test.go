package jwtauthn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// waitingClient is a Downstream whose client disconnects after a second.
type waitingClient struct{ protocol.Downstream }

func (waitingClient) OnDisconnect(f func()) (stop func()) {
	disconnect := time.AfterFunc(time.Second, f)
	return func() { disconnect.Stop() }
}

// TestWaitForKeysEndsEarly verifies that a request that waits for keys ends when its client
// disconnects or the connection drains, and that the filter then neither allows nor denies it,
// whatever the rule requires.
func TestWaitForKeysEndsEarly(t *testing.T) {
	for _, requirement := range []string{
		`{"provider_name": "one"}`, `{"allow_missing": {}}`, `{"allow_missing_or_failed": {}}`,
		`{"requires_any": {"requirements": [{"provider_name": "one"}, {"allow_missing_or_failed": {}}]}}`,
		`{"requires_all": {"requirements": [{"allow_missing_or_failed": {}}, {"provider_name": "one"}]}}`,
	} {
		for _, test := range []struct {
			name       string
			downstream protocol.Downstream
			want       protocol.Reason
		}{
			{"disconnect", waitingClient{}, protocol.ReasonDownstreamDisconnect},
			{"drain", nil, protocol.Draining},
		} {
			t.Run(test.name+" "+requirement, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					clusters := &filtertest.ClusterClient{Clusters: map[string]protocol.Service{"id": filtertest.SilentApplication()}}
					f, probe := filtertest.BuildWith(t, Factory(), filtertest.Settings(`{"providers": {"one": {"remote_jwks": {"http_uri":
						{"uri": "http://id.test/keys", "cluster": "id", "timeout": "10s"}}}}, "rules": [{"requires": `+requirement+`}]}`), clusters)
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					start := time.Now()
					x := filtertest.NewRequest("/", "Authorization: Bearer a.b.c")
					x.Downstream = test.downstream
					err := x.Serve(ctx, f(filtertest.Application()))
					if got := protocol.ReasonOf(err); got != test.want || x.Response.Status != 0 || time.Since(start) > 2*time.Second {
						t.Errorf("after %v: reason %v, status %d; want %v and no response within 2s", time.Since(start), got, x.Response.Status, test.want)
					}
					if n := probe.Value(requestsMetric()); n != 0 {
						t.Errorf("%v requests were allowed or denied, want 0", n)
					}
					clusters.Wait()
				})
			})
		}
	}
}
