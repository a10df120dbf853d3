package layers_test

import (
	"errors"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
)

// TestSetFileRestoresLayers verifies that all layers return to their previous state if the file
// cannot become active, for each possible reason.
func TestSetFileRestoresLayers(t *testing.T) {
	errRejected := errors.New("rejected")
	first := &config.Snapshot{}
	next := &config.Snapshot{Admin: &config.Admin{}, Clusters: clustersNamed("c")}
	tests := map[string]struct {
		file          *config.Snapshot
		lowerErr      error
		upperErr      error
		applyErr      error
		want          string // error; "": applied
		upperEndCalls int
	}{
		"applied":                  {file: next, upperEndCalls: 1},
		"lower layer rejects":      {file: next, lowerErr: errRejected, want: "rejected"},
		"upper layer rejects":      {file: next, upperErr: errRejected, want: "rejected", upperEndCalls: 1},
		"name of a layer":          {file: &config.Snapshot{Admin: &config.Admin{}, Clusters: clustersNamed("upper")}, want: `cluster "upper": layer upper also defines this name`, upperEndCalls: 1},
		"server cannot apply":      {file: next, applyErr: errRejected, want: "rejected", upperEndCalls: 1},
		"file without other names": {file: first, upperEndCalls: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := &fakeServer{t: t}
			stack := server.stack()
			lower, upper := &fakeLayer{name: "lower"}, &fakeLayer{name: "upper"}
			stack.Add(lower)
			stack.Add(upper)
			if err := stack.SetFile(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			before, freedBefore := describe(server.active), upper.namesFreedCalls
			lower.endReasons, upper.endReasons = nil, nil
			lower.err, upper.err, server.err = tt.lowerErr, tt.upperErr, tt.applyErr
			err := stack.SetFile(t.Context(), tt.file)
			if tt.want == "" {
				if err != nil || upper.namesFreedCalls != freedBefore+1 {
					t.Errorf("SetFile = %v, NamesFreed was called %d times; want no error and one call", err, upper.namesFreedCalls-freedBefore)
				}
			} else if err == nil || err.Error() != tt.want || describe(server.active) != before || upper.namesFreedCalls != freedBefore {
				t.Errorf("SetFile = %v, want %s; active %s; NamesFreed was called %d times", err, tt.want, describe(server.active), upper.namesFreedCalls-freedBefore)
			}
			if len(lower.endReasons) != 1 || len(upper.endReasons) != tt.upperEndCalls || !errors.Is(lower.endReasons[0], err) {
				t.Errorf("end was called with %v and %v; want %d calls for the upper layer, and the error %v", lower.endReasons, upper.endReasons, tt.upperEndCalls, err)
			}
			stack.Lock()
			defer stack.Unlock()
			if got := describe(stack.Snapshot()); got != describe(server.active) {
				t.Errorf("the stack describes %s, active: %s; want the same", got, describe(server.active))
			}
		})
	}
}

// TestOwner verifies that Owner finds the layer that defines a name and skips the calling layer.
func TestOwner(t *testing.T) {
	stack := (&fakeServer{t: t}).stack()
	layer := &fakeLayer{name: "a"}
	stack.Add(layer)
	file := &config.Snapshot{
		Admin:     &config.Admin{},
		Clusters:  clustersNamed("c"),
		Listeners: []*config.Listener{{Name: "l"}},
		Routes:    []*config.RouteTable{{Name: "t"}},
	}
	if err := stack.SetFile(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	stack.Lock()
	defer stack.Unlock()
	for _, tt := range []struct {
		caller layers.Layer
		kind   layers.Kind
		name   string
		want   string
	}{
		{nil, layers.Cluster, "c", "the file"},
		{nil, layers.Listener, "l", "the file"},
		{nil, layers.RouteTable, "t", "the file"},
		{nil, layers.Listener, "c", ""},
		{nil, layers.Cluster, "a", "layer a"},
		{layer, layers.Cluster, "a", ""},
		{layer, layers.Cluster, "c", "the file"},
	} {
		if got := stack.Owner(tt.caller, tt.kind, tt.name); got != tt.want {
			t.Errorf("the owner of %s %s is %q, want %q", tt.kind, tt.name, got, tt.want)
		}
	}
}
