package xds

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestAListenerThatCouldNotBeIsTriedAgain when what it is made of changes: routes that it
// could not be put in force with may have been the reason.
func TestAListenerThatCouldNotBeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.broken = func(next *config.Snapshot) error {
			for _, table := range next.Routes {
				if table.Name == "late" && strings.HasPrefix(table.VirtualHosts[0].Routes[0].Direct.Body, "bad") {
					return errors.New("these routes cannot be composed")
				}
			}
			return nil
		}
		c := r.converse()
		r.supplied(c)
		c.accepted(aListener("a", 81, "late", "", 0), aListener("l", 80, "r", "", 0))
		for _, step := range []struct {
			routes string
			want   []string
		}{
			{"bad", []string{"l"}},
			{"bad as before", []string{"l"}},
			{"good", []string{"a", "l"}},
		} {
			c.accepted(someRoutes("late", step.routes))
			if got := r.listeners(); !slices.Equal(got, step.want) {
				t.Errorf("with routes that are %s, active: %v, want %v", step.routes, got, step.want)
			}
		}
		if got := c.say(resource.RouteType, packedAs(someRoutes("late", "bad"))).GetErrorDetail().GetMessage(); !strings.Contains(got, "cannot be composed") {
			t.Errorf("routes that are invalid for the active listener are rejected with %q", got)
		}
	})
}

// TestNamesAreTheFilesOrTheControlPlanes, whoever has them first.
func TestNamesAreTheFilesOrTheControlPlanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		c := r.converse()
		r.supplied(c)
		c.accepted(aCluster("c", "e", "", 0), aCluster("waits", "later", "", 0))
		c.accepted(aListener("l", 80, "r", "", 0), aListener("more", 81, "later", "", 0))
		before := r.inForce.Load()
		for want, file := range map[string]*config.Snapshot{
			`cluster "c"`:         {Clusters: []*config.Cluster{{Name: "c"}}},
			`cluster "waits"`:     {Clusters: []*config.Cluster{{Name: "waits"}}},
			`listener "l"`:        {Listeners: []*config.Listener{{Name: "l"}}},
			`listener "more"`:     {Listeners: []*config.Listener{{Name: "more"}}},
			`route table "r"`:     {Routes: []*config.RouteTable{{Name: "r"}}},
			`route table "later"`: {Routes: []*config.RouteTable{{Name: "later"}}},
		} {
			file.Bootstrap = r.source.o.Bootstrap
			if err := r.source.Rebase(t.Context(), file); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a file with the %s of the control plane's: %v", want, err)
			}
			if err := r.source.RebaseSome(t.Context(), file, file.Clusters, nil); len(file.Clusters) > 0 && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("services with the %s of the control plane's: %v", want, err)
			}
		}
		if r.inForce.Load() != before {
			t.Error("a part of a rejected file is active")
		}
		if err := r.source.Rebase(t.Context(), &config.Snapshot{Bootstrap: r.source.o.Bootstrap, Routes: []*config.RouteTable{{Name: "mine"}}}); err != nil {
			t.Fatal(err)
		}
		got := c.say(resource.ListenerType, packedAs(aListener("l", 80, "mine", "", 0))).GetErrorDetail().GetMessage()
		if want := `l: route table "mine": the file defines a static route table with this name`; got != want {
			t.Errorf("a listener that uses a table with the name of a static table is rejected with %q, want %q", got, want)
		}
	})
}

// packedAs is what is said as a response has it.
func packedAs(r said) *anypb.Any { return &anypb.Any{TypeUrl: r.url, Value: r.body} }

// TestWhatIsTakenAwayGoesThoughWhatComesWithItIsRefused.
func TestWhatIsTakenAwayGoesThoughWhatComesWithItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.broken = withoutPort(":99")
		c := r.converse()
		r.supplied(c)
		got := c.say(resource.ListenerType, packedAs(aListener("bad", 99, "r", "", 0))).GetErrorDetail().GetMessage()
		if got != "bad: listener bad: port :99 is in use" {
			t.Errorf("rejected with %q, want only bad", got)
		}
		if got := r.listeners(); len(got) != 0 {
			t.Errorf("active: %v, want none: l was removed", got)
		}
	})
}
