package layers_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
)

// newOverlay returns a stack with an overlay for the route table "services", and an empty file.
func newOverlay(t *testing.T) (*fakeServer, *layers.Stack, *layers.Overlay) {
	t.Helper()
	server := &fakeServer{t: t}
	stack := server.stack()
	overlay := layers.NewOverlay(stack, "a service", "services")
	if err := stack.SetFile(t.Context(), &config.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	return server, stack, overlay
}

func TestOverlayExtendsFile(t *testing.T) {
	other := &config.RouteTable{Name: "other"}
	tests := []struct {
		name string
		file *config.Snapshot
		want string
	}{
		{"file without the table", &config.Snapshot{}, "A B | services host0(* r1 r2)"},
		{
			"empty table", &config.Snapshot{Clusters: clustersNamed("z"), Routes: []*config.RouteTable{tableOf(), other}},
			"A B z | services host0(* r1 r2) | other",
		},
		{
			"routes of the file come first", &config.Snapshot{Routes: []*config.RouteTable{other, tableOf("a.example: x", "*: y z")}},
			"A B | other | services host0(a.example x) host1(* y z r1 r2)",
		},
		{
			"other domains", &config.Snapshot{Routes: []*config.RouteTable{tableOf("a.example: x")}},
			"A B | services host0(a.example x) host0#2(* r1 r2)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := describe(tt.file)
			server, stack, overlay := newOverlay(t)
			for _, step := range []func() error{
				func() error {
					return overlay.Apply(t.Context(), layers.Change{Clusters: clustersNamed("B", "A", "C"), Routes: tableOf("*: r1 r2")})
				},
				func() error { return stack.SetFile(t.Context(), tt.file) },
				func() error { return overlay.Apply(t.Context(), layers.Change{Removed: []string{"C"}}) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			if got := describe(server.active); got != tt.want {
				t.Errorf("active: %s, want %s", got, tt.want)
			}
			if after := describe(tt.file); after != before {
				t.Errorf("Apply changed the file to %s, want %s", after, before)
			}
		})
	}
}

// TestOverlayReportsChanges verifies that the delta contains only what has changed, unless a
// cluster was removed.
func TestOverlayReportsChanges(t *testing.T) {
	server, _, overlay := newOverlay(t)
	for _, change := range []layers.Change{
		{Clusters: clustersNamed("A", "B"), Routes: tableOf("*: r1")},
		{Clusters: clustersNamed("A")},
		{Routes: tableOf("*: r2")},
		{Removed: []string{"B"}},
	} {
		if err := overlay.Apply(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		d := server.deltas[len(server.deltas)-1]
		if full := len(change.Removed) > 0; d.Full != full || !full && len(d.Clusters) != len(change.Clusters) || !full && (len(d.Routes) == 1) != (change.Routes != nil) {
			t.Errorf("the delta of %+v is %+v; want only these changes, or a full delta after a removal", change, d)
		}
	}
}

// TestConflictChangesNothing verifies that a name of another layer rejects the whole change.
func TestConflictChangesNothing(t *testing.T) {
	server, stack, overlay := newOverlay(t)
	file := &config.Snapshot{Clusters: clustersNamed("a"), Routes: []*config.RouteTable{tableOf("*: x")}}
	if err := stack.SetFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if err := overlay.Apply(t.Context(), layers.Change{Clusters: clustersNamed("A"), Routes: tableOf("*: r1")}); err != nil {
		t.Fatal(err)
	}
	before := describe(server.active)
	for want, apply := range map[string]func() error{
		`cluster "a": the file also defines this name`: func() error {
			return overlay.Apply(t.Context(), layers.Change{Clusters: clustersNamed("B", "a"), Removed: []string{"A"}})
		},
		`route table "services": route "x": the file and a service define this name`: func() error {
			return overlay.Apply(t.Context(), layers.Change{Clusters: clustersNamed("B"), Removed: []string{"A"}, Routes: tableOf("*: r1 x")})
		},
		`cluster "A": a service also defines this name`: func() error {
			return stack.SetFile(t.Context(), &config.Snapshot{Clusters: clustersNamed("b", "A")})
		},
		`route table "services": route "r1": the file and a service define this name`: func() error {
			return stack.SetFile(t.Context(), &config.Snapshot{Routes: []*config.RouteTable{tableOf("*: r1")}})
		},
	} {
		if err := apply(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		stack.Lock()
		if got := describe(stack.Snapshot()); got != before || describe(server.active) != before {
			t.Errorf("after %s: %s, want %s", want, got, before)
		}
		stack.Unlock()
	}
}

// TestOverlayOwnsItsTable verifies that the route table of an overlay is defined even if the file
// does not define it.
func TestOverlayOwnsItsTable(t *testing.T) {
	_, stack, _ := newOverlay(t)
	owner := func() string {
		stack.Lock()
		defer stack.Unlock()
		return stack.Owner(nil, layers.RouteTable, "services")
	}
	if got := owner(); got != "a service" {
		t.Errorf("owner without the table in the file: %q, want a service", got)
	}
	if err := stack.SetFile(t.Context(), &config.Snapshot{Routes: []*config.RouteTable{tableOf()}}); err != nil {
		t.Fatal(err)
	}
	if got := owner(); got != "the file" {
		t.Errorf("owner with the table in the file: %q, want the file", got)
	}
}

// TestRandomChanges verifies that the stack describes the active configuration after random files
// and changes, some of which cannot be applied.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a fixed seed makes the test repeatable
		server, stack, overlay := newOverlay(t)
		accepted, rejected := 0, 0
		for range 60 {
			server.err = nil
			if random.IntN(3) == 0 {
				server.err = errors.New("cannot be applied")
			}
			var err error
			if random.IntN(3) == 0 {
				file := &config.Snapshot{Clusters: clustersNamed(fmt.Sprint("c", random.IntN(8)))}
				if random.IntN(2) == 0 {
					file.Routes = []*config.RouteTable{tableOf(fmt.Sprintf("*: r%d", random.IntN(6)))}
				}
				err = stack.SetFile(t.Context(), file)
			} else {
				var change layers.Change
				for i := range 8 {
					switch random.IntN(8) {
					case 0:
						change.Clusters = append(change.Clusters, clustersNamed(fmt.Sprint("c", i))...)
					case 1:
						change.Removed = append(change.Removed, fmt.Sprint("c", i))
					}
				}
				if random.IntN(2) == 0 {
					change.Routes = tableOf(fmt.Sprintf("*: r%d", random.IntN(6)))
				}
				err = overlay.Apply(t.Context(), change)
			}
			if err == nil {
				accepted++
			} else {
				rejected++
			}
			stack.Lock()
			if got, want := describe(stack.Snapshot()), describe(server.active); got != want {
				t.Fatalf("seed %d: the stack describes %s, active: %s", seed, got, want)
			}
			stack.Unlock()
		}
		if accepted == 0 || rejected == 0 {
			t.Errorf("seed %d: %d changes accepted, %d rejected; want some of both", seed, accepted, rejected)
		}
	}
}
