// Package layers merges the configurations of several sources into the configuration of the server:
//
//	the file · Dubbo services (Overlay) · the control plane (xds.Source)
//	      │ Stack: one lock, one owning layer for each name, rollback
//	      │ config.Delta
//	  the server
//
// A source changes its layer and applies the change while it holds the lock of the Stack. If
// applying fails, the layer returns to its previous state, so the layers always describe the
// active configuration. A name belongs to the layer that defines it first; a change that defines it
// again is rejected.
//
// Each source checks names itself, with Stack.Owner, because the scope of the error differs: a
// conflict rejects the file, the change of an Overlay, or one resource of the control plane. Each
// source also restores its own layer, because only the source can do that with work proportional to
// the change: SetFile swaps the file back, an Overlay puts back what it replaced, and xds.Source
// also has to restore resources that wait for others.
package layers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-proxy/weft/pkg/config"
)

// Kind is the type of a named resource, as it appears in errors.
type Kind string

// The types of resources.
const (
	Cluster    Kind = "cluster"
	Listener   Kind = "listener"
	RouteTable Kind = "route table"
)

// Layer is the part of the configuration that a source other than the file defines. The Stack calls
// its methods with the lock held.
type Layer interface {
	// Owner returns the owner of a resource for errors, such as "the control plane". It returns ""
	// if the layer does not define the resource. The resource need not be active.
	Owner(kind Kind, name string) string
	// AppendTo adds the active resources to next. It may change the lists of clusters, listeners
	// and route tables, but not the values they point to.
	AppendTo(next *config.Snapshot)
	// SetFile updates the parts of the layer that depend on the file. The Stack then calls end,
	// unless it is nil, even after an error. reason is nil if file is active. Otherwise the file
	// and the lower layers have already returned to their previous state, and end restores the
	// previous state of this layer.
	SetFile(file *config.Snapshot) (end func(ctx context.Context, reason error), err error)
	// NamesFreed notifies the layer that other layers may define fewer names than before.
	NamesFreed()
}

// Stack holds the layers and applies their changes. Its lock guards the layers and the state of
// their sources. A caller may hold the lock for seconds, because it applies a configuration under
// the lock.
type Stack struct {
	sync.Mutex

	apply  func(context.Context, config.Delta) error // immutable
	file   *File                                     // the lowest layer
	layers []Layer                                   // the other layers, from the lowest to the highest
}

// New returns a Stack with an empty file. apply makes a configuration active, or returns an error
// and changes nothing. The Stack serializes the calls of apply.
func New(apply func(context.Context, config.Delta) error) *Stack {
	return &Stack{apply: apply, file: NewFile(&config.Snapshot{})}
}

// Add adds an empty layer above the others. The caller calls Add before the first SetFile.
func (s *Stack) Add(l Layer) {
	s.Lock()
	defer s.Unlock()
	s.layers = append(s.layers, l)
}

// SetFile makes file the lowest layer and applies the result. It returns an error of a layer or of
// apply without wrapping it; all layers then have their previous state. ctx is the lifetime of new
// listeners.
func (s *Stack) SetFile(ctx context.Context, file *config.Snapshot) error {
	s.Lock()
	defer s.Unlock()
	previous := s.file
	s.file = NewFile(file)
	ends, err := s.setFile(ctx, file)
	if err != nil {
		s.file = previous
	}
	for _, end := range ends {
		end(ctx, err)
	}
	if err == nil {
		s.namesFreed(nil)
	}
	return err
}

// setFile passes the file to the layers and applies the result. It returns the functions that the
// caller calls with the result.
func (s *Stack) setFile(ctx context.Context, file *config.Snapshot) (ends []func(context.Context, error), err error) {
	for _, l := range s.layers {
		end, err := l.SetFile(file)
		if end != nil {
			ends = append(ends, end)
		}
		if err != nil {
			return ends, err
		}
	}
	for kind, name := range s.file.names {
		for _, l := range s.layers {
			if owner := l.Owner(kind, name); owner != "" {
				return ends, conflict(kind, name, owner)
			}
		}
	}
	return ends, s.apply(ctx, config.FullDelta(s.Snapshot()))
}

// Apply applies the change that a layer has made to itself; it sets d.Next. After an error the
// layer undoes the change. The caller holds the lock.
func (s *Stack) Apply(ctx context.Context, d config.Delta) error {
	d.Next = s.Snapshot
	return s.apply(ctx, d)
}

// Snapshot returns the merged configuration. The caller holds the lock.
func (s *Stack) Snapshot() *config.Snapshot {
	return Merge(s.file.snapshot, func(next *config.Snapshot) {
		for _, l := range s.layers {
			l.AppendTo(next)
		}
	})
}

// Merge returns the configuration of a file and the resources that appendTo adds to it.
func Merge(file *config.Snapshot, appendTo func(next *config.Snapshot)) *config.Snapshot {
	next := *file
	next.Clusters = slices.Clone(next.Clusters)
	next.Listeners = slices.Clone(next.Listeners)
	next.Routes = slices.Clone(next.Routes)
	appendTo(&next)
	return &next
}

// Owner returns the owner of a resource in a layer other than l; "": none. The caller holds the
// lock.
func (s *Stack) Owner(l Layer, kind Kind, name string) string {
	if owner := s.file.Owner(kind, name); owner != "" {
		return owner
	}
	for _, other := range s.layers {
		if other == l {
			continue
		}
		if owner := other.Owner(kind, name); owner != "" {
			return owner
		}
	}
	return ""
}

// namesFreed notifies the layers other than l that names may have become free.
func (s *Stack) namesFreed(l Layer) {
	for _, other := range s.layers {
		if other != l {
			other.NamesFreed()
		}
	}
}

// conflict returns the error for a name that owner already defines.
func conflict(kind Kind, name, owner string) error {
	return fmt.Errorf("%s %q: %s also defines this name", kind, name, owner)
}
