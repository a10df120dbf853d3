package resource

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// tableGenerator generates random tables.
type tableGenerator struct {
	*rand.Rand
	count int
}

func (g *tableGenerator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g *tableGenerator) headers() []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x", Value: strconv.Itoa(g.IntN(3))}}}
}

func (g *tableGenerator) perFilter() map[string]*anypb.Any {
	settings, err := anypb.New(&corsv3.CorsPolicy{MaxAge: strconv.Itoa(g.IntN(3))})
	if err != nil {
		panic(err)
	}
	return map[string]*anypb.Any{"envoy.filters.http.cors": settings}
}

func (g *tableGenerator) route() *routev3.Route {
	r := &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + strconv.Itoa(g.IntN(50))}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c" + strconv.Itoa(g.IntN(3))}}},
	}
	if g.oneIn(2) {
		r.Name = "r" + strconv.Itoa(g.IntN(4))
	}
	if g.oneIn(4) {
		r.Decorator = &routev3.Decorator{Operation: "ignored"}
	}
	if g.oneIn(4) {
		r.TypedPerFilterConfig = g.perFilter()
	}
	if g.oneIn(4) {
		r.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{
			DefaultValue: &typev3.FractionalPercent{Numerator: 50}, RuntimeKey: "key" + strconv.Itoa(g.IntN(2)),
		}
	}
	return r
}

func (g *tableGenerator) virtualHost() *routev3.VirtualHost {
	g.count++
	v := &routev3.VirtualHost{Name: "v" + strconv.Itoa(g.count), Domains: []string{fmt.Sprintf("h%d.test", g.count)}}
	if g.oneIn(5) {
		v.Metadata = &corev3.Metadata{}
		v.TypedPerFilterConfig = g.perFilter()
	}
	for range g.IntN(6) {
		v.Routes = append(v.Routes, g.route())
	}
	return v
}

// edit changes a table in a few places.
func (g *tableGenerator) edit(t *routev3.RouteConfiguration) {
	for range 1 + g.IntN(3) {
		n := len(t.VirtualHosts)
		switch choice := g.IntN(12); {
		case choice == 0 || n == 0:
			t.VirtualHosts = slices.Insert(t.VirtualHosts, g.IntN(n+1), g.virtualHost())
		case choice == 1:
			index := g.IntN(n)
			t.VirtualHosts = slices.Delete(t.VirtualHosts, index, index+1)
		case choice == 2:
			g.Shuffle(n, func(i, j int) { t.VirtualHosts[i], t.VirtualHosts[j] = t.VirtualHosts[j], t.VirtualHosts[i] })
		case choice == 3 && g.oneIn(3):
			t.TypedPerFilterConfig = g.perFilter()
		case choice == 4 && g.oneIn(3):
			t.RequestHeadersToAdd = g.headers()
		default:
			g.editVirtualHost(t.VirtualHosts[g.IntN(n)])
		}
	}
}

func (g *tableGenerator) editVirtualHost(v *routev3.VirtualHost) {
	n := len(v.Routes)
	switch choice := g.IntN(10); {
	case choice == 0 || n == 0:
		v.Routes = slices.Insert(v.Routes, g.IntN(n+1), g.route())
	case choice == 1:
		index := g.IntN(n)
		v.Routes = slices.Delete(v.Routes, index, index+1)
	case choice == 2:
		g.Shuffle(n, func(i, j int) { v.Routes[i], v.Routes[j] = v.Routes[j], v.Routes[i] })
	case choice == 3:
		v.Routes = append(v.Routes, proto.CloneOf(v.Routes[g.IntN(n)])) // a duplicate
	case choice == 4:
		v.TypedPerFilterConfig = g.perFilter()
	case choice == 5:
		v.RetryPolicy = &routev3.RetryPolicy{RetryOn: "5xx", NumRetries: wrapperspb.UInt32(g.Uint32N(4))}
	case choice == 6: // fields that routes do not inherit
		v.RequestHeadersToAdd, v.Domains = g.headers(), append(v.Domains, fmt.Sprintf("more%d.test", g.IntN(40)))
	case choice == 7:
		v.Name += "'"
	case choice == 8:
		v.Routes[g.IntN(n)].Action = nil // rejected
	default:
		v.Routes[g.IntN(n)] = g.route()
	}
}

// TestUpdateEqualsFullRead verifies that Update returns the same result as ReadRoutes while the
// table changes repeatedly and the runtime changes sometimes.
func TestUpdateEqualsFullRead(t *testing.T) {
	caps := testCapabilities()
	accepted, rejected, reused, total := 0, 0, 0, 0
	for seed := range uint64(60) {
		g := &tableGenerator{Rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // deterministic
		m := &routev3.RouteConfiguration{Name: "t"}
		var previous *RouteTable
		for range 30 {
			next := proto.CloneOf(m)
			g.edit(next)
			if g.oneIn(6) {
				caps.Runtime = newTestRuntime(t, fmt.Sprintf(`{"key0": %d}`, g.IntN(3)))
			}
			body, err := proto.MarshalOptions{Deterministic: true}.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			got, gotErr := previous.Update(body, caps)
			want, wantErr := ReadRoutes(slices.Clone(body), caps)
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("Update returns %v, ReadRoutes %v", gotErr, wantErr)
			}
			inline := &report{capabilities: caps}
			if model := (fieldReader{report: inline}).readTable(proto.CloneOf(next)); fmt.Sprint(inline.rejection()) != fmt.Sprint(wantErr) {
				t.Fatalf("ReadRoutes returns %v, readTable %v", wantErr, inline.rejection())
			} else if wantErr == nil && !reflect.DeepEqual(model, want.Config) {
				t.Fatalf("ReadRoutes reads\n%v, readTable\n%v", want.Config, model)
			}
			if wantErr != nil {
				rejected++
				continue // continue from the last accepted table
			}
			accepted++
			if !reflect.DeepEqual(got.Config, want.Config) {
				t.Fatalf("Update returns\n%v\nwant\n%v", got.Config, want.Config)
			}
			if !slices.Equal(got.Ignored, want.Ignored) || !slices.Equal(got.RuntimeKeys, want.RuntimeKeys) {
				t.Fatalf("ignored are %q, want %q; keys are %q, want %q", got.Ignored, want.Ignored, got.RuntimeKeys, want.RuntimeKeys)
			}
			previousRoutes := previous.addresses()
			for address := range got.addresses() {
				if total++; previousRoutes[address] {
					reused++
				}
			}
			previous, m = got, next
		}
	}
	t.Logf("%d accepted and %d rejected tables, %d of %d routes reused", accepted, rejected, reused, total)
	if accepted < 500 || rejected < 50 || reused < total/2 || reused == total {
		t.Error("too few accepted, rejected or reused routes for a meaningful test")
	}
}

// addresses returns the pointers to the routes of a table.
func (t *RouteTable) addresses() map[any]bool {
	out := map[any]bool{}
	if t != nil {
		for _, v := range t.Config.VirtualHosts {
			for _, r := range v.Routes {
				out[r] = true
			}
		}
	}
	return out
}

// largeTable returns a table of 20,000 routes in the given number of virtual hosts.
func largeTable(hosts int) *routev3.RouteConfiguration {
	t := &routev3.RouteConfiguration{Name: "t"}
	for n := range hosts {
		v := &routev3.VirtualHost{Name: "v" + strconv.Itoa(n), Domains: []string{fmt.Sprintf("h%d.test", n)}}
		for r := range 20_000 / hosts {
			v.Routes = append(v.Routes, &routev3.Route{
				Match:     &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: fmt.Sprintf("/%d/", r)}},
				Action:    &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c" + strconv.Itoa(r)}}},
				Decorator: &routev3.Decorator{Operation: "as Istio has them"},
			})
		}
		t.VirtualHosts = append(t.VirtualHosts, v)
	}
	return t
}

func TestUpdateKeepsUnchangedRoutes(t *testing.T) {
	for _, hosts := range []int{1, 200} {
		m := largeTable(hosts)
		before, err := ReadRoutes(serialized(t, m), Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		m.VirtualHosts[0].Routes[50].Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/another"}
		after, err := before.Update(serialized(t, m), Capabilities{})
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		previousRoutes := before.addresses()
		for address := range after.addresses() {
			if !previousRoutes[address] {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("with %d virtual hosts %d routes changed, want 1", hosts, changed)
		}
		for i, v := range after.Config.VirtualHosts {
			if same := v == before.Config.VirtualHosts[i]; same == (i == 0) {
				t.Errorf("virtual host %d is reused: %v, want %v", i, same, i != 0)
			}
		}
	}
}

func serialized(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func BenchmarkRouteTableUpdate(b *testing.B) {
	for _, hosts := range []int{1, 200, 20_000} {
		b.Run("routes=20000/hosts="+strconv.Itoa(hosts), func(b *testing.B) {
			m := largeTable(hosts)
			var bodies [2][]byte
			for i := range bodies {
				m.VirtualHosts[0].Routes[0].Match.PathSpecifier = &routev3.RouteMatch_Path{Path: "/" + strconv.Itoa(i)}
				bodies[i] = serialized(b, m)
			}
			t, err := ReadRoutes(bodies[0], Capabilities{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				if t, err = t.Update(bodies[i%2], Capabilities{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadRoutes(b *testing.B) {
	body := serialized(b, largeTable(200))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadRoutes(body, Capabilities{}); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzRouteTableUpdate verifies that the result of Update does not depend on the previous
// table, and that it equals the result of readTable.
func FuzzRouteTableUpdate(f *testing.F) {
	bodies := capturedResources(f, "04-RDS.pb")
	for i, body := range bodies {
		f.Add(bodies[max(0, i-1)], body)
		f.Add(body, append(bytes.Clone(body), body...))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		previous, err := ReadRoutes(before, testCapabilities())
		if err != nil {
			previous = nil
		}
		want, wantErr := ReadRoutes(after, testCapabilities())
		got, gotErr := previous.Update(after, testCapabilities())
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("Update returns %v, ReadRoutes %v", gotErr, wantErr)
		}
		if wantErr != nil {
			return
		}
		if !reflect.DeepEqual(got.Config, want.Config) || !slices.Equal(got.Ignored, want.Ignored) || !slices.Equal(got.RuntimeKeys, want.RuntimeKeys) {
			t.Errorf("Update returns %+v, want %+v", got, want)
		}
		m := &routev3.RouteConfiguration{}
		if err := proto.Unmarshal(after, m); err != nil {
			t.Fatalf("cannot unmarshal an accepted table: %v", err)
		}
		r := &report{capabilities: testCapabilities()}
		if inline := (fieldReader{report: r}).readTable(m); r.rejection() != nil || !reflect.DeepEqual(inline, want.Config) {
			t.Errorf("readTable returns %+v, %v, want %+v", inline, r.rejection(), want.Config)
		}
	})
}
