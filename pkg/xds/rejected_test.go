package xds

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// TestRejectedListenerIsRetried verifies that a rejected listener is applied again when its routes
// change, because the routes may have been the reason.
func TestRejectedListenerIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = func(next *config.Snapshot) error {
			for _, table := range next.Routes {
				if table.Name == "late" && strings.HasPrefix(table.VirtualHosts[0].Routes[0].DirectResponse.Body, "bad") {
					return errors.New("these routes cannot be compiled")
				}
			}
			return nil
		}
		c := r.runAndAccept()
		r.sendInitial(c)
		c.sendAccepted(xdstest.Listener("a", 81, "late", "", 0), xdstest.Listener("l", 80, "r", "", 0))
		for _, step := range []struct {
			routes string
			want   []string
		}{
			{"bad", []string{"l"}},
			{"bad as before", []string{"l"}},
			{"good", []string{"a", "l"}},
		} {
			c.sendAccepted(xdstest.Routes("late", step.routes))
			if got := r.listeners(); !slices.Equal(got, step.want) {
				t.Errorf("with routes %q, active: %v, want %v", step.routes, got, step.want)
			}
		}
		if got := c.send(resource.RouteType, packResource(xdstest.Routes("late", "bad"))).GetErrorDetail().GetMessage(); !strings.Contains(got, "cannot be compiled") {
			t.Errorf("routes that cannot be applied: NACK %q, want the error of Apply", got)
		}
	})
}

// TestNameConflictsWithFile verifies that the stack rejects names that the control plane uses, and
// that a listener cannot use a route table of the file.
func TestNameConflictsWithFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		overlay := layers.NewOverlay(r.source.stack, "a service", "services")
		c := r.runAndAccept()
		r.sendInitial(c)
		c.sendAccepted(xdstest.Cluster("c", "e", "", 0), xdstest.Cluster("waits", "later", "", 0))
		c.sendAccepted(xdstest.Listener("l", 80, "r", "", 0), xdstest.Listener("more", 81, "later", "", 0))
		before := r.active.Load()
		for want, file := range map[string]*config.Snapshot{
			`cluster "c"`:         {Clusters: []*config.Cluster{{Name: "c"}}},
			`cluster "waits"`:     {Clusters: []*config.Cluster{{Name: "waits"}}},
			`listener "l"`:        {Listeners: []*config.Listener{{Name: "l"}}},
			`listener "more"`:     {Listeners: []*config.Listener{{Name: "more"}}},
			`route table "r"`:     {Routes: []*config.RouteTable{{Name: "r"}}},
			`route table "later"`: {Routes: []*config.RouteTable{{Name: "later"}}},
		} {
			file.Bootstrap = r.source.opts.Bootstrap
			if err := r.source.stack.SetFile(t.Context(), file); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("SetFile with %s of the control plane: %v, want an error that names it", want, err)
			}
			if len(file.Clusters) == 0 {
				continue
			}
			if err := overlay.Apply(t.Context(), layers.Change{Clusters: file.Clusters}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Overlay.Apply with %s of the control plane: %v, want an error that names it", want, err)
			}
		}
		if r.active.Load() != before {
			t.Error("a part of a rejected file is active")
		}
		if err := r.source.stack.SetFile(t.Context(), &config.Snapshot{Bootstrap: r.source.opts.Bootstrap, Routes: []*config.RouteTable{{Name: "mine"}}}); err != nil {
			t.Fatal(err)
		}
		got := c.send(resource.ListenerType, packResource(xdstest.Listener("l", 80, "mine", "", 0))).GetErrorDetail().GetMessage()
		if want := `l: route table "mine": the file also defines this name`; got != want {
			t.Errorf("NACK for a listener with a route table of the file = %q, want %q", got, want)
		}
	})
}

// packResource returns r as a response contains it.
func packResource(r xdstest.Resource) *anypb.Any { return &anypb.Any{TypeUrl: r.URL, Value: r.Body} }

// TestRemovalAppliesWhenAdditionIsRejected verifies that a response removes a listener although the
// new listener of the response is rejected.
func TestRemovalAppliesWhenAdditionIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.applyErr = withoutPort(":99")
		c := r.runAndAccept()
		r.sendInitial(c)
		got := c.send(resource.ListenerType, packResource(xdstest.Listener("bad", 99, "r", "", 0))).GetErrorDetail().GetMessage()
		if got != "bad: listener bad: port :99 is in use" {
			t.Errorf("rejected with %q, want only bad", got)
		}
		if got := r.listeners(); len(got) != 0 {
			t.Errorf("active: %v, want none: l was removed", got)
		}
	})
}
