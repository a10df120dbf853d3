package xds

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/internal/xdstest"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// activeClusters returns the sorted names of the active clusters, without those of the bootstrap.
func (r *rig) activeClusters() string {
	synctest.Wait()
	var names []string
	for _, c := range r.active.Load().Clusters {
		if c.Name != "control" && c.Name != "agent" {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestOtherLayers verifies that a lower layer can add clusters and routes to those of the control
// plane. They stay active after an update by the control plane and after rejected changes.
func TestOtherLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		overlay := layers.NewOverlay(r.source.stack, "a service", "t")
		c := r.runAndAccept()
		r.sendInitial(c)
		if err := r.source.stack.SetFile(t.Context(), &config.Snapshot{}); err != nil {
			t.Fatal(err)
		}
		table := &config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{Name: "v"}}}
		if err := overlay.Apply(t.Context(), layers.Change{Clusters: []*config.Cluster{{Name: "a"}, {Name: "b"}}, Routes: table}); err != nil {
			t.Fatal(err)
		}
		checkActive := func(label string) {
			t.Helper()
			if got := r.activeClusters(); got != "a b c" {
				t.Errorf("%s: active clusters %s, want a b c", label, got)
			}
			if !slices.ContainsFunc(r.active.Load().Routes, func(active *config.RouteTable) bool { return reflect.DeepEqual(active, table) }) {
				t.Errorf("%s: the table t of the overlay is not active", label)
			}
		}
		checkActive("immediately")
		c.sendAccepted(xdstest.Listener("more", 81, "r", "", 0))
		checkActive("after a listener")

		r.applyErr = func(*config.Snapshot) error { return errors.New("no") }
		if err := overlay.Apply(t.Context(), layers.Change{Clusters: []*config.Cluster{{Name: "d"}}, Routes: &config.RouteTable{}}); err == nil {
			t.Error("Apply accepted clusters that cannot be applied")
		}
		if err := overlay.Apply(t.Context(), layers.Change{Routes: &config.RouteTable{}}); err == nil {
			t.Error("Apply accepted a table that cannot be applied")
		}
		r.applyErr = nil
		if err := overlay.Apply(t.Context(), layers.Change{Clusters: []*config.Cluster{{Name: "a"}, {Name: "c"}}}); err == nil || err.Error() != `cluster "c": the control plane also defines this name` {
			t.Errorf("Apply with a name of the control plane = %v, want a name conflict", err)
		}
		got := c.send(resource.ListenerType, packResource(xdstest.Listener("l", 80, "t", "", 0))).GetErrorDetail().GetMessage()
		if want := `l: route table "t": a service also defines this name`; got != want {
			t.Errorf("NACK for a listener with the table of another layer = %q, want %q", got, want)
		}
		c.sendAccepted(xdstest.Listener("l", 82, "r", "", 0))
		checkActive("after rejected changes")
	})
}

// TestSetFileDuringStart verifies that a call of SetFile while Run starts leads to one stream to a
// new SDS cluster. No stream can start after Run has returned.
func TestSetFileDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		r.serve(controlAddress)
		agent := r.serve(agentAddress)
		l := &listenerv3.Listener{}
		if err := proto.Unmarshal(xdstest.SecuredListener("secured", "a", "agent").Body, l); err != nil {
			t.Fatal(err)
		}
		file := &config.Snapshot{Bootstrap: r.source.opts.Bootstrap}
		file.Bootstrap.StaticResources = []byte(strings.Replace(string(file.Bootstrap.StaticResources), `{`, `{"listeners": [`+protojson.Format(l)+`], `, 1))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.source.Run(ctx) }()
		if err := r.source.stack.SetFile(ctx, file); err != nil {
			t.Fatal(err)
		}
		c := r.nextStream(agent)
		if got := c.expectRequest(resource.SecretType).GetResourceNames(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("subscribed to secrets %q, want a", got)
		}
		synctest.Wait()
		if n := len(agent.streams); n != 0 {
			t.Errorf("%d more streams, want none", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, stop := range r.stop {
			stop()
		}
		if r.source.startChannel != nil {
			t.Error("startChannel is set after Run has returned")
		}
	})
}

// TestReleasedNamesAreRequestedAgain verifies that the Source reconnects when the file releases
// names of rejected resources. Otherwise the control plane would not send these resources again.
func TestReleasedNamesAreRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		controlPlane := r.serve(controlAddress)
		r.run()
		c := r.nextStream(controlPlane)
		r.sendInitial(c)
		file := &config.Snapshot{Bootstrap: r.source.opts.Bootstrap}
		conflicting := *file
		conflicting.Bootstrap.StaticResources = []byte(strings.Replace(string(file.Bootstrap.StaticResources), `[`, `[{"name": "x"}, `, 1))
		conflicting.Listeners = []*config.Listener{{Name: "m"}}
		if err := r.source.stack.SetFile(t.Context(), &conflicting); err != nil {
			t.Fatal(err)
		}
		x, m := xdstest.Cluster("x", "e", "", 0), xdstest.Listener("m", 81, "r", "", 0)
		for _, resources := range [][]xdstest.Resource{{xdstest.Cluster("c", "e", "", 0), x}, {xdstest.Listener("l", 80, "r", "", 0), m}} {
			if ack := c.send(resources[0].URL, &anypb.Any{TypeUrl: resources[0].URL, Value: resources[0].Body}, &anypb.Any{TypeUrl: resources[1].URL, Value: resources[1].Body}); ack.GetErrorDetail() == nil {
				t.Errorf("%s of the control plane was accepted, want a NACK because the file defines the name", resources[1].Name)
			}
		}
		extended := conflicting
		extended.Clusters = []*config.Cluster{{Name: "more"}}
		if err := r.source.stack.SetFile(t.Context(), &extended); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(controlPlane.streams); n != 0 {
			t.Errorf("%d streams started after a change that releases no name, want 0", n)
		}
		if err := r.source.stack.SetFile(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		reconnected := r.nextStream(controlPlane)
		reconnected.sendAccepted(xdstest.Cluster("c", "e", "", 0), x)
		reconnected.sendAccepted(xdstest.Listener("l", 80, "r", "", 0), m)
		if got := r.activeClusters(); got != "c x" || !slices.Equal(r.listeners(), []string{"l", "m"}) {
			t.Errorf("active clusters: %s and listeners %v, want c x and l m", got, r.listeners())
		}
	})
}

// TestOwnedNamesDoNotReconnect verifies that a change of the file does not reconnect while the file
// still defines, in static_resources, the name of a rejected resource.
func TestOwnedNamesDoNotReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		controlPlane := r.serve(controlAddress)
		r.run()
		c := r.nextStream(controlPlane)
		r.sendInitial(c)
		file := config.Snapshot{Bootstrap: r.source.opts.Bootstrap}
		file.Bootstrap.StaticResources = []byte(strings.Replace(string(file.Bootstrap.StaticResources), `[`, `[{"name": "x"}, `, 1))
		if err := r.source.stack.SetFile(t.Context(), &file); err != nil {
			t.Fatal(err)
		}
		response := c.send(resource.ClusterType, packResource(xdstest.Cluster("c", "e", "", 0)), packResource(xdstest.Cluster("x", "e", "", 0)))
		if got := response.GetErrorDetail().GetMessage(); !strings.Contains(got, "static_resources also defines this name") {
			t.Fatalf("cluster x is rejected with %q, want a name conflict", got)
		}
		other := file
		if err := r.source.stack.SetFile(t.Context(), &other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // longer than the delay before a new stream
		if n := len(controlPlane.streams); n != 0 {
			t.Errorf("%d streams started, want none", n)
		}
	})
}

// TestFreedTableIsRequestedAgain verifies that the Source requests a rejected listener again when
// the file no longer defines the route table that caused the rejection.
func TestFreedTableIsRequestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		controlPlane := r.serve(controlAddress)
		r.run()
		c := r.nextStream(controlPlane)
		r.sendInitial(c)
		file := config.Snapshot{Bootstrap: r.source.opts.Bootstrap}
		withTable := file
		withTable.Routes = []*config.RouteTable{{Name: "mine"}}
		if err := r.source.stack.SetFile(t.Context(), &withTable); err != nil {
			t.Fatal(err)
		}
		listener := xdstest.Listener("m", 81, "mine", "", 0)
		response := c.send(resource.ListenerType, packResource(xdstest.Listener("l", 80, "r", "", 0)), packResource(listener))
		if got := response.GetErrorDetail().GetMessage(); !strings.Contains(got, "the file also defines this name") {
			t.Fatalf("listener m is rejected with %q, want a name conflict", got)
		}
		if err := r.source.stack.SetFile(t.Context(), &file); err != nil {
			t.Fatal(err)
		}
		r.nextStream(controlPlane).sendAccepted(xdstest.Listener("l", 80, "r", "", 0), listener)
	})
}
