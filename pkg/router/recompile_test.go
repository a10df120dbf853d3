package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// edit returns a copy of c with a few random edits. Unchanged parts are the same pointers.
func (g generator) edit(c *config.RouteTable) *config.RouteTable {
	next := *c
	next.VirtualHosts = slices.Clone(c.VirtualHosts)
	for range 1 + g.IntN(3) {
		switch g.IntN(10) {
		case 0:
			next.Request = g.mutation()
		case 1:
			next.IgnorePort = !next.IgnorePort
		case 2: // another order of virtual hosts
			g.Shuffle(len(next.VirtualHosts), func(i, j int) {
				next.VirtualHosts[i], next.VirtualHosts[j] = next.VirtualHosts[j], next.VirtualHosts[i]
			})
		case 3: // added virtual hosts, whose domains may be in use
			added := g.table().VirtualHosts
			for i, vh := range added {
				vh.Name = fmt.Sprintf("more-%d-%d", g.Uint32(), i)
			}
			next.VirtualHosts = slices.Insert(next.VirtualHosts, g.IntN(len(next.VirtualHosts)+1), added...)
		case 4: // a removed virtual host
			if n := len(next.VirtualHosts); n > 1 {
				at := g.IntN(n)
				next.VirtualHosts = slices.Delete(next.VirtualHosts, at, at+1)
			}
		default:
			if n := len(next.VirtualHosts); n > 0 {
				at := g.IntN(n)
				next.VirtualHosts[at] = g.editVirtualHost(next.VirtualHosts[at])
			}
		}
	}
	return &next
}

func (g generator) mutation() config.HeaderMutation {
	return config.HeaderMutation{Add: []config.HeaderValue{{Name: "x", Value: pick(g, "1", "2")}}}
}

func (g generator) editVirtualHost(vh *config.VirtualHost) *config.VirtualHost {
	next := *vh
	next.Routes = slices.Clone(vh.Routes)
	for range 1 + g.IntN(3) {
		n := len(next.Routes)
		switch kind := g.IntN(8); {
		case kind == 0:
			next.Name += "'"
		case kind == 1:
			next.Request, next.Response = g.mutation(), g.mutation()
		case kind == 2 && len(vh.Domains) > 1:
			next.Domains = vh.Domains[1:]
		case kind == 3:
			g.Shuffle(n, func(i, j int) { next.Routes[i], next.Routes[j] = next.Routes[j], next.Routes[i] })
		case kind == 4 || n == 0:
			next.Routes = slices.Insert(next.Routes, g.IntN(n+1), g.route())
		case kind == 5:
			at := g.IntN(n)
			next.Routes = slices.Delete(next.Routes, at, at+1)
		case kind == 6: // the action
			at := g.IntN(n)
			r := *next.Routes[at]
			r.Forward = &config.Forward{Cluster: "c", Request: g.mutation()}
			next.Routes[at] = &r
		default:
			next.Routes[g.IntN(n)] = g.route()
		}
	}
	return &next
}

func (g generator) route() *config.Route {
	return &config.Route{Name: pick(g, "a", "b"), Match: g.match(), Forward: &config.Forward{Cluster: "c"}}
}

// TestRecompileEqualsCompile verifies that after each of many changes, requests take the same
// routes as in a newly compiled table, with the same results.
func TestRecompileEqualsCompile(t *testing.T) {
	accepted, rejected, reused, total := 0, 0, 0, 0
	for seed := range uint64(50) {
		g := generator{rand.New(rand.NewPCG(seed, 2))}
		c := g.table()
		for i, vh := range c.VirtualHosts {
			vh.Name = fmt.Sprintf("host-%d", i)
		}
		table, err := Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 12 {
			next := g.edit(table.Config())
			recompiled, err := table.Recompile(next)
			compiled, compileErr := Compile(next)
			if fmt.Sprint(err) != fmt.Sprint(compileErr) {
				t.Fatalf("Recompile returned %v, Compile %v; want the same error", err, compileErr)
			}
			if err != nil {
				rejected++
				continue // and continue from the previous table
			}
			accepted++
			if recompiled.Config() != next || len(recompiled.Routes()) != len(compiled.Routes()) {
				t.Fatalf("the table has %d routes, want %d of the new configuration", len(recompiled.Routes()), len(compiled.Routes()))
			}
			for i, r := range recompiled.Routes() {
				if want := compiled.Routes()[i]; r.Config != want.Config || r.VirtualHost != want.VirtualHost {
					t.Fatalf("route %d is %q of %q, want %q of %q", i, r.Config.Name, r.VirtualHost, want.Config.Name, want.VirtualHost)
				}
				if slices.Contains(table.Routes(), r) {
					reused++
				}
				total++
			}
			for range 30 {
				compareTables(t, g.Uint64(), recompiled, compiled)
			}
			table = recompiled
		}
	}
	if accepted < 200 || rejected < 20 || reused < total/2 || reused == total {
		t.Errorf("%d tables accepted, %d rejected, %d of %d routes reused: too unbalanced to verify anything", accepted, rejected, reused, total)
	}
}

// compareTables fails the test if a random request takes different routes in two tables of the same
// configuration, or if the routes rewrite its headers differently.
func compareTables(t *testing.T, seed uint64, a, b *Table) {
	t.Helper()
	request := func() *protocol.Exchange { return generator{rand.New(rand.NewPCG(seed, 3))}.exchange() }
	x, y := request(), request()
	i := a.Find(x)
	if want := b.Find(y); i != want {
		t.Fatalf("Find(%s %q) = %d, want %d", x.Request.Authority, x.Request.Path, i, want)
	}
	if i < 0 {
		return
	}
	a.Routes()[i].RewriteRequest(x)
	b.Routes()[i].RewriteRequest(y)
	if got, want := x.Request.Header.CloneFields(), y.Request.Header.CloneFields(); !slices.Equal(got, want) {
		t.Fatalf("headers after the rewrite: %v, want %v", got, want)
	}
}

func TestRecompileReusesUnchangedParts(t *testing.T) {
	c, _ := sizedTable(config.PathPrefix, 1000, 10)
	table := mustCompileTable(t, c)
	table.Random = func() uint64 { return 7 }
	next := *c
	next.VirtualHosts = slices.Clone(c.VirtualHosts)
	vh := *c.VirtualHosts[3]
	vh.Routes = slices.Clone(vh.Routes)
	route := *vh.Routes[50]
	route.Forward = &config.Forward{Cluster: "another"}
	vh.Routes[50] = &route
	next.VirtualHosts[3] = &vh
	recompiled, err := table.Recompile(&next)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range recompiled.Routes() {
		if got, want := r == table.Routes()[i], i != 350; got != want {
			t.Errorf("route %d reused: %v, want %v", i, got, want)
		}
	}
	if recompiled.domains != table.domains || recompiled.virtualHosts[3].index.tree != table.tree() {
		t.Error("unchanged domains and paths were indexed again")
	}
	if recompiled.Random == nil || recompiled.Random() != 7 {
		t.Error("Recompile did not keep Random")
	}
}

// tree returns the tree that the virtual hosts of a newly compiled table share.
func (t *Table) tree() *tree { return t.virtualHosts[0].index.tree }

func BenchmarkRecompile(b *testing.B) {
	for _, hosts := range []int{1, 200} {
		for _, kind := range []string{"action", "path"} {
			b.Run(fmt.Sprintf("routes=20000/hosts=%d/%s", hosts, kind), func(b *testing.B) {
				c, _ := sizedTable(config.PathPrefix, 20_000, hosts)
				table := mustCompileTable(b, c)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					next := *c
					next.VirtualHosts = slices.Clone(c.VirtualHosts)
					vh := *c.VirtualHosts[0]
					vh.Routes = slices.Clone(vh.Routes)
					route := *vh.Routes[7]
					route.Forward = &config.Forward{Cluster: "another"}
					if kind == "path" {
						route.Match.Path = fmt.Sprintf("/%d", i)
					}
					vh.Routes[7] = &route
					next.VirtualHosts[0] = &vh
					recompiled, err := table.Recompile(&next)
					if err != nil {
						b.Fatal(err)
					}
					c, table = &next, recompiled
				}
			})
		}
	}
}
