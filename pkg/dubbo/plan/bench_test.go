package plan_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/dubbo/plan"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/registry"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
	"github.com/weft-proxy/weft/pkg/upstream/pool"
	"github.com/weft-proxy/weft/pkg/upstream/subset"
)

// fakeConnector is a Connector whose connections respond immediately.
type fakeConnector struct{}

func (fakeConnector) Multiplexed() bool { return false }

func (fakeConnector) Connect(_ context.Context, _ *upstream.Host, _ time.Time, released func(bool)) (pool.Connection, error) {
	return &fakeConn{released: released}, nil
}

type fakeConn struct{ released func(bool) }

func (*fakeConn) Usable(time.Duration) bool { return true }
func (*fakeConn) Close() error              { return nil }

func (c *fakeConn) Start(_ context.Context, x *protocol.Exchange) error {
	x.Response.Status = 200
	c.released(true)
	return nil
}

// BenchmarkHostSelection measures route matching and host selection for services with rules.
func BenchmarkHostSelection(b *testing.B) {
	tags := document("tag", "application", "a", "tags: [{name: gray, addresses: ['10.0.0.3:1', '10.0.0.4:1']}]")
	var conditions []registry.URL
	for i := range 100 {
		conditions = append(conditions, condition(fmt.Sprintf("attachments[user]=u%d & method=get* =>", i)))
	}
	for _, bench := range []struct {
		name  string
		rules []registry.URL
		tag   string
	}{
		{"no rules", nil, ""},
		{"tag rule, call without tag", []registry.URL{tags}, ""},
		{"tag rule, call with tag", []registry.URL{tags}, "gray"},
		{"two conditions", []registry.URL{condition("method=get* => host!=10.0.0.1"), condition("attachments[user]=ann => host=10.0.0.2")}, ""},
		{"100 conditions", conditions, ""},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var providers []string
			for i := range 20 {
				providers = append(providers, fmt.Sprintf("dubbo://10.0.0.%d:1/x?application=a", i+1))
			}
			snapshots := snapshots(b, providers...)
			snapshots[0].Snapshot.Routers = bench.rules
			result := plan.Compute(plan.Reference{Service: registry.Service{Interface: "x"}}, snapshots, noon())
			table, err := router.Compile(plan.RouteTable([][]*config.Route{result.Routes}))
			if err != nil {
				b.Fatal(err)
			}
			set := upstream.NewSet(upstream.Options{
				Connectors: map[config.Protocol]upstream.Connector{config.Dubbo: fakeConnector{}},
				Policies:   map[config.LBPolicy]balance.NewFunc{config.Random: balance.Random},
			})
			defer set.Close()
			change, err := set.Prepare([]*config.Cluster{result.Cluster})
			if err != nil {
				b.Fatal(err)
			}
			change.Commit()
			change.DrainRemoved()
			call := newCall("method=getName", "user=eve", "dubbo.tag="+bench.tag)
			f := table.Match(call).Config.Forward
			picker := &upstream.ClusterPicker{Cluster: set.Get(f.Cluster), Protocol: config.Dubbo, Labels: subset.NewLabels(f.Metadata)}
			b.ReportAllocs()
			for b.Loop() {
				call.Record.Attempts = call.Record.Attempts[:0]
				if r := table.Match(call); r == nil {
					b.Fatal("no route matches the call")
				}
				if err := call.Serve(context.Background(), picker); err != nil && protocol.ReasonOf(err) != protocol.NoHealthyHost {
					b.Fatal(err)
				}
			}
		})
	}
}
