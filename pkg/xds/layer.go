package xds

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// SetFile implements layers.Layer.SetFile: it replaces the static resources with those of the file.
// Changes of static_resources take effect immediately, except the addresses and the TLS
// configuration of control planes. Those, and the rest of the bootstrap, take effect after a
// restart.
func (s *Source) SetFile(file *config.Snapshot) (end func(context.Context, error), err error) {
	next, err := s.updateStaticResources(file.Bootstrap)
	if err == nil {
		err = s.state.CheckStaticNames()
	}
	return func(ctx context.Context, reason error) {
		defer s.state.Checkpoint()
		switch {
		case reason == nil:
			s.completeSetFile(&file.Bootstrap, next)
		case next != nil:
			s.state.Rollback()
			s.reapplyActive(ctx)
		}
	}, err
}

// completeSetFile runs when the file is active. next are the static resources of the file if they
// have changed, else nil.
func (s *Source) completeSetFile(file *config.Bootstrap, next *bootstrap.StaticResources) {
	if s.file != nil && (next != nil && s.targetsChanged(next) || !equalExceptStatic(*file, s.opts.Bootstrap) && !equalExceptStatic(*file, *s.file)) {
		s.opts.Log.Warn("the bootstrap changed outside static_resources, or the address or TLS of a control plane changed: restart Weft to apply the change")
	}
	s.file = file
	if next != nil {
		s.staticJSON = file.StaticResources
		s.activeStatic.Store(next)
		s.updateSubscriptions()
		s.updateResourceCounts()
	}
}

// resourceKey is the type and name of a resource.
type resourceKey struct{ url, name string }

// NamesFreed implements layers.Layer.NamesFreed: it reconnects if a resource was rejected because
// of a name that is free now, so that the control plane sends the resource again.
func (s *Source) NamesFreed() {
	reconnect := map[*channel]bool{}
	for rejected, conflict := range s.nameConflicts {
		if s.state.ReservedBy(conflict.url, conflict.name) != "" {
			continue
		}
		delete(s.nameConflicts, rejected)
		if ch := s.channelOf(rejected.url); ch.history.IsRejected(rejected.url, rejected.name) {
			reconnect[ch] = true
		}
	}
	for ch := range reconnect {
		ch.reconnect()
	}
}

// Owner implements layers.Layer.Owner.
func (s *Source) Owner(kind layers.Kind, name string) string {
	return s.state.Owner(typeURLOf(kind), name)
}

// AppendTo implements layers.Layer.AppendTo.
func (s *Source) AppendTo(next *config.Snapshot) {
	lower := len(next.Clusters)
	s.state.AppendTo(next)
	next.Clusters = append(next.Clusters[:lower:lower], s.withoutOmitted(next.Clusters[lower:])...)
}

// otherOwner returns the other layer that defines a resource; "": none.
func (s *Source) otherOwner(typeURL, name string) string {
	kind := kindOf(typeURL)
	if kind == "" {
		return ""
	}
	return s.stack.Owner(s, kind, name)
}

// typeURLOf returns the resource type of a kind.
func typeURLOf(kind layers.Kind) string {
	switch kind {
	case layers.Cluster:
		return resource.ClusterType
	case layers.Listener:
		return resource.ListenerType
	case layers.RouteTable:
		return resource.RouteType
	}
	return ""
}

// kindOf returns the kind of a resource type; "": other layers have no such resources.
func kindOf(typeURL string) layers.Kind {
	switch typeURL {
	case resource.ClusterType:
		return layers.Cluster
	case resource.ListenerType:
		return layers.Listener
	case resource.RouteType:
		return layers.RouteTable
	}
	return ""
}

// equalExceptStatic reports whether two bootstraps are equal except for static_resources.
func equalExceptStatic(a, b config.Bootstrap) bool {
	a.StaticResources, b.StaticResources = nil, nil
	return reflect.DeepEqual(a, b)
}

// mainChannel returns the ADS channel; nil if the bootstrap has no dynamic_resources.
func (s *Source) mainChannel() *channel {
	if s.boot.ADSCluster == "" {
		return nil
	}
	return s.channels[0]
}

// addStaticResources adds static_resources to the state. An error is of type bootstrap.FieldErrors.
func (s *Source) addStaticResources(static *bootstrap.StaticResources) error {
	now := time.Now()
	if err := s.state.SetStatic(static, now); err != nil {
		return err
	}
	if _, next := s.state.Reconcile(now); !next.IsZero() { // ignore the changes: applying the first file includes them
		s.deadlineTimer.Reset(next.Sub(now))
	}
	s.state.Checkpoint()
	return nil
}

// updateStaticResources replaces the static_resources in the state with those of a reloaded file,
// and reconciles the state. The caller rolls back if it cannot apply them. updateStaticResources
// returns nil if they are unchanged. It also returns nil until the first SetFile has completed,
// because New has added them.
func (s *Source) updateStaticResources(b config.Bootstrap) (next *bootstrap.StaticResources, err error) {
	if s.file == nil || bytes.Equal(b.StaticResources, s.staticJSON) {
		return nil, nil //nolint:nilnil // nothing has changed
	}
	if next, err = bootstrap.ReadStatic(b.StaticResources, s.opts.Capabilities); err != nil {
		return nil, err
	}
	now := time.Now()
	s.state.Checkpoint()
	if err := s.state.SetStatic(next, now); err != nil {
		return next, err
	}
	_, deadline := s.state.Reconcile(now)
	s.deadlineTimer.Stop()
	if !deadline.IsZero() {
		s.deadlineTimer.Reset(deadline.Sub(now))
	}
	return next, nil
}

// TargetsChanged reports whether the active file changes the address or the TLS configuration of a
// control plane in use. Such a change takes effect after a restart.
func (s *Source) TargetsChanged() bool { return s.targetsChanged(s.activeStatic.Load()) }

// targetsChanged reports whether next changes the address or the TLS configuration of a control
// plane in use.
func (s *Source) targetsChanged(next *bootstrap.StaticResources) bool {
	targets := next.Targets()
	for name, current := range s.boot.Targets {
		inUse := name == s.boot.LRSCluster || slices.ContainsFunc(s.channels, func(ch *channel) bool { return ch.name == name })
		target := targets[name]
		if inUse && (target.Address != current.Address || target.IsUnix != current.IsUnix || !reflect.DeepEqual(target.TLS, current.TLS)) {
			return true
		}
	}
	return false
}
