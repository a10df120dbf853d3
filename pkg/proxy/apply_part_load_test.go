package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// versionFilter returns a filter that copies its route configuration to the x-stamp response
// header.
func versionFilter() filter.StreamFilterFactory {
	return filter.StreamFilterFactory{
		Name: "stamping", Stage: filter.AfterRoute,
		Config: func() any { return new(textConfig) },
		New: func(cfg any, _ filter.Env) (filter.Filter, error) {
			return func(next protocol.Service) protocol.Service {
				return protocol.BlockingFunc(func(ctx context.Context, x *protocol.Exchange) error {
					err := x.Serve(ctx, next)
					x.Response.Header.Set("x-stamp", fmt.Sprint(cfg))
					return err
				})
			}, nil
		},
	}
}

// TestRequestSeesOneRouteVersion verifies that a request under load sees exactly one version of its
// route: the version that is active when the request starts, or a later one. Meanwhile routes and
// virtual hosts change and move, by a delta of the table or of the complete configuration.
func TestRequestSeesOneRouteVersion(t *testing.T) {
	r, address := setup{filters: `{"type": "stamping"}`, routes: directRoute("old")}.run(t, versionFilter())
	const hosts, paths = 3, 4
	var active, latest [hosts][paths]atomic.Int64 // route versions
	version := func(h, p int) *config.Route {
		text := strconv.FormatInt(latest[h][p].Add(1), 10)
		route := directRouteNamed(fmt.Sprintf("h%d/p%d", h, p), text)
		route.Match.Path, route.Filters = fmt.Sprintf("/p%d", p), map[string]any{"stamping": &textConfig{text}}
		return route
	}
	var routes [hosts][paths]*config.Route
	for h := range hosts {
		for p := range paths {
			routes[h][p] = version(h, p)
		}
	}
	table, random := r.server.Running().Routes[0], rand.New(rand.NewPCG(5, 6)) //nolint:gosec // a fixed seed makes the test repeatable
	change := func() {
		next := *table
		next.VirtualHosts = nil
		for _, h := range random.Perm(hosts) {
			v := &config.VirtualHost{Name: fmt.Sprint("h", h), Domains: []string{fmt.Sprintf("h%d.test", h)}}
			if random.IntN(4) == 0 {
				v.Response.Add = []config.HeaderValue{{Name: "x-some", Value: "thing"}}
			}
			for _, p := range random.Perm(paths) {
				if random.IntN(4) == 0 {
					routes[h][p] = version(h, p)
				}
				v.Routes = append(v.Routes, routes[h][p])
			}
			next.VirtualHosts = append(next.VirtualHosts, v)
		}
		table = &next
		complete := *r.server.Running()
		complete.Routes = []*config.RouteTable{table}
		var err error
		if random.IntN(5) == 0 {
			err = r.server.Apply(context.Background(), config.FullDelta(&complete))
		} else {
			err = r.server.Apply(context.Background(), config.Delta{Routes: []*config.RouteTable{table}, Next: noSnapshot})
		}
		if err != nil {
			t.Fatal(err)
		}
		for h := range hosts {
			for p := range paths {
				n, _ := strconv.ParseInt(routes[h][p].DirectResponse.Body, 10, 64)
				active[h][p].Store(n)
			}
		}
	}
	change()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			c, random := dialClient(t, address), rand.New(rand.NewPCG(7, uint64(i))) //nolint:gosec // as above
			for {
				select {
				case <-stop:
					return
				default:
				}
				h, p := random.IntN(hosts), random.IntN(paths)
				minVersion := active[h][p].Load()
				got := c.roundTrip(strings.Replace(get(fmt.Sprintf("/p%d", p)), "shop.test", fmt.Sprintf("h%d.test", h), 1))
				maxVersion := latest[h][p].Load()
				n, _ := strconv.ParseInt(got.body, 10, 64)
				if got.StatusCode != 200 || got.Header.Get("X-Stamp") != got.body || n < minVersion || n > maxVersion {
					t.Errorf("response %d %q with x-stamp %q, want a version from %d to %d", got.StatusCode, got.body, got.Header.Get("X-Stamp"), minVersion, maxVersion)
					return
				}
			}
		})
	}
	for range 200 {
		change()
	}
	close(stop)
	clients.Wait()
}
