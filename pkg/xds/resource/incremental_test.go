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

func (a *tableGenerator) oneIn(n int) bool { return a.IntN(n) == 0 }

func (a *tableGenerator) headers() []*corev3.HeaderValueOption {
	return []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x", Value: strconv.Itoa(a.IntN(3))}}}
}

func (a *tableGenerator) perFilter() map[string]*anypb.Any {
	settings, err := anypb.New(&corsv3.CorsPolicy{MaxAge: strconv.Itoa(a.IntN(3))})
	if err != nil {
		panic(err)
	}
	return map[string]*anypb.Any{"envoy.filters.http.cors": settings}
}

func (a *tableGenerator) route() *routev3.Route {
	r := &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + strconv.Itoa(a.IntN(50))}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c" + strconv.Itoa(a.IntN(3))}}},
	}
	if a.oneIn(2) {
		r.Name = "r" + strconv.Itoa(a.IntN(4))
	}
	if a.oneIn(4) {
		r.Decorator = &routev3.Decorator{Operation: "ignored"}
	}
	if a.oneIn(4) {
		r.TypedPerFilterConfig = a.perFilter()
	}
	if a.oneIn(4) {
		r.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{
			DefaultValue: &typev3.FractionalPercent{Numerator: 50}, RuntimeKey: "key" + strconv.Itoa(a.IntN(2)),
		}
	}
	return r
}

func (a *tableGenerator) host() *routev3.VirtualHost {
	a.count++
	v := &routev3.VirtualHost{Name: "v" + strconv.Itoa(a.count), Domains: []string{fmt.Sprintf("h%d.test", a.count)}}
	if a.oneIn(5) {
		v.Metadata = &corev3.Metadata{}
		v.TypedPerFilterConfig = a.perFilter()
	}
	for range a.IntN(6) {
		v.Routes = append(v.Routes, a.route())
	}
	return v
}

// edit changes a table in a few places.
func (a *tableGenerator) edit(t *routev3.RouteConfiguration) {
	for range 1 + a.IntN(3) {
		n := len(t.VirtualHosts)
		switch kind := a.IntN(12); {
		case kind == 0 || n == 0:
			t.VirtualHosts = slices.Insert(t.VirtualHosts, a.IntN(n+1), a.host())
		case kind == 1:
			at := a.IntN(n)
			t.VirtualHosts = slices.Delete(t.VirtualHosts, at, at+1)
		case kind == 2:
			a.Shuffle(n, func(i, j int) { t.VirtualHosts[i], t.VirtualHosts[j] = t.VirtualHosts[j], t.VirtualHosts[i] })
		case kind == 3 && a.oneIn(3):
			t.TypedPerFilterConfig = a.perFilter()
		case kind == 4 && a.oneIn(3):
			t.RequestHeadersToAdd = a.headers()
		default:
			a.editHost(t.VirtualHosts[a.IntN(n)])
		}
	}
}

func (a *tableGenerator) editHost(v *routev3.VirtualHost) {
	n := len(v.Routes)
	switch kind := a.IntN(10); {
	case kind == 0 || n == 0:
		v.Routes = slices.Insert(v.Routes, a.IntN(n+1), a.route())
	case kind == 1:
		at := a.IntN(n)
		v.Routes = slices.Delete(v.Routes, at, at+1)
	case kind == 2:
		a.Shuffle(n, func(i, j int) { v.Routes[i], v.Routes[j] = v.Routes[j], v.Routes[i] })
	case kind == 3:
		v.Routes = append(v.Routes, proto.CloneOf(v.Routes[a.IntN(n)])) // a duplicate
	case kind == 4:
		v.TypedPerFilterConfig = a.perFilter()
	case kind == 5:
		v.RetryPolicy = &routev3.RetryPolicy{RetryOn: "5xx", NumRetries: wrapperspb.UInt32(a.Uint32N(4))}
	case kind == 6: // fields that routes do not inherit
		v.RequestHeadersToAdd, v.Domains = a.headers(), append(v.Domains, fmt.Sprintf("more%d.test", a.IntN(40)))
	case kind == 7:
		v.Name += "'"
	case kind == 8:
		v.Routes[a.IntN(n)].Action = nil // rejected
	default:
		v.Routes[a.IntN(n)] = a.route()
	}
}

// TestUpdateEqualsFullRead changes tables repeatedly, and sometimes the runtime. It verifies that
// Update returns the same result as ReadRoutes.
func TestUpdateEqualsFullRead(t *testing.T) {
	kinds := testCapabilities()
	accepted, refused, kept, all := 0, 0, 0, 0
	for seed := range uint64(60) {
		a := &tableGenerator{Rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // it is to be the same each time
		m := &routev3.RouteConfiguration{Name: "t"}
		var before *RouteTable
		for range 30 {
			next := proto.CloneOf(m)
			a.edit(next)
			if a.oneIn(6) {
				kinds.Runtime = newTestRuntime(t, fmt.Sprintf(`{"key0": %d}`, a.IntN(3)))
			}
			body, err := proto.MarshalOptions{Deterministic: true}.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			got, gotErr := before.Update(body, kinds)
			want, wantErr := ReadRoutes(slices.Clone(body), kinds)
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("Reread returns %v, ReadRoutes %v", gotErr, wantErr)
			}
			inline := &report{capabilities: kinds}
			if model := (fieldReader{report: inline}).readTable(proto.CloneOf(next)); fmt.Sprint(inline.rejection()) != fmt.Sprint(wantErr) {
				t.Fatalf("ReadRoutes returns %v, readTable %v", wantErr, inline.rejection())
			} else if wantErr == nil && !reflect.DeepEqual(model, want.Config) {
				t.Fatalf("ReadRoutes reads\n%v, readTable\n%v", want.Config, model)
			}
			if wantErr != nil {
				refused++
				continue // continue from the last accepted table
			}
			accepted++
			if !reflect.DeepEqual(got.Config, want.Config) {
				t.Fatalf("it is\n%v\nwant\n%v", got.Config, want.Config)
			}
			if !slices.Equal(got.Ignored, want.Ignored) || !slices.Equal(got.RuntimeKeys, want.RuntimeKeys) {
				t.Fatalf("ignored are %q, want %q; keys are %q, want %q", got.Ignored, want.Ignored, got.RuntimeKeys, want.RuntimeKeys)
			}
			known := before.addresses()
			for address := range got.addresses() {
				if all++; known[address] {
					kept++
				}
			}
			before, m = got, next
		}
	}
	t.Logf("%d accepted, %d rejected; %d of %d reused", accepted, refused, kept, all)
	if accepted < 500 || refused < 50 || kept < all/2 || kept == all {
		t.Error("too few seeds of one kind for a meaningful test")
	}
}

// addresses returns the pointers of the routes of a table.
func (t *RouteTable) addresses() map[any]bool {
	all := map[any]bool{}
	if t != nil {
		for _, v := range t.Config.VirtualHosts {
			for _, r := range v.Routes {
				all[r] = true
			}
		}
	}
	return all
}

// largeTable returns a table of 20,000 routes.
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
		known := before.addresses()
		for address := range after.addresses() {
			if !known[address] {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("in %d virtual hosts %d routes are others, want 1", hosts, changed)
		}
		for i, v := range after.Config.VirtualHosts {
			if same := v == before.Config.VirtualHosts[i]; same == (i == 0) {
				t.Errorf("virtual host %d is reused: %v", i, same)
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

// FuzzRouteTableUpdate verifies that the result does not depend on the previous table, or on
// whether the table is read in parts.
func FuzzRouteTableUpdate(f *testing.F) {
	all := capture(f, "04-RDS.pb")
	for i, body := range all {
		f.Add(all[max(0, i-1)], body)
		f.Add(body, append(bytes.Clone(body), body...))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		known, err := ReadRoutes(before, testCapabilities())
		if err != nil {
			known = nil
		}
		want, wantErr := ReadRoutes(after, testCapabilities())
		got, gotErr := known.Update(after, testCapabilities())
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("Reread returns %v, ReadRoutes %v", gotErr, wantErr)
		}
		if wantErr != nil {
			return
		}
		if !reflect.DeepEqual(got.Config, want.Config) || !slices.Equal(got.Ignored, want.Ignored) || !slices.Equal(got.RuntimeKeys, want.RuntimeKeys) {
			t.Errorf("it is read as %+v, want %+v", got, want)
		}
		m := &routev3.RouteConfiguration{}
		if err := proto.Unmarshal(after, m); err != nil {
			t.Fatalf("what was read is no message: %v", err)
		}
		r := &report{capabilities: testCapabilities()}
		if whole := (fieldReader{report: r}).readTable(m); r.rejection() != nil || !reflect.DeepEqual(whole, want.Config) {
			t.Errorf("in one it is read as %+v, %v, want %+v", whole, r.rejection(), want.Config)
		}
	})
}
