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
				t.Errorf("with routes that are %s in force are %v, want %v", step.routes, got, step.want)
			}
		}
		if got := c.say(resource.RouteType, packedAs(someRoutes("late", "bad"))).GetErrorDetail().GetMessage(); !strings.Contains(got, "cannot be composed") {
			t.Errorf("routes that are bad for what is in force are refused with %q", got)
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
			t.Error("something of a file that was refused is in force")
		}
		if err := r.source.Rebase(t.Context(), &config.Snapshot{Bootstrap: r.source.o.Bootstrap, Routes: []*config.RouteTable{{Name: "mine"}}}); err != nil {
			t.Fatal(err)
		}
		got := c.say(resource.ListenerType, packedAs(aListener("l", 80, "mine", "", 0))).GetErrorDetail().GetMessage()
		if want := `l: routes "mine": the file has a static route table of that name`; got != want {
			t.Errorf("a listener that goes by a table of the file's name is refused with %q, want %q", got, want)
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
			t.Errorf("refused with %q, want bad alone", got)
		}
		if got := r.listeners(); len(got) != 0 {
			t.Errorf("in force are %v, want none: l was taken away", got)
		}
	})
}
