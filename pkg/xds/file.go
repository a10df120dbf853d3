package xds

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// ApplyFile applies the configuration of the file together with the resources of the control plane.
// It is called once before Run, and again after each reload of the file. It rejects a file that
// defines a name of the control plane. Changes of static_resources take effect immediately, except
// the addresses of control planes. Those, and the rest of the bootstrap, take effect after a
// restart.
func (s *Source) ApplyFile(ctx context.Context, file *config.Snapshot) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	defer s.state.Checkpoint()
	taken := s.nameConflicts()
	next, err := s.updateStaticResources(file.Bootstrap)
	if err == nil {
		err = s.state.CheckNameConflicts(file)
	}
	if err == nil {
		err = s.opts.Apply(ctx, s.state.Snapshot(file))
	}
	if err != nil {
		if next != nil {
			s.state.Rollback()
			s.reapplyActive(ctx)
		}
		return err
	}
	if s.fileSnapshot != nil && (next != nil && s.targetsChanged(next) || !equalExceptStatic(file.Bootstrap, s.opts.Bootstrap) && !equalExceptStatic(file.Bootstrap, s.fileSnapshot.Bootstrap)) {
		s.opts.Log.Warn("the change of dynamic_resources, node or the address of a control plane takes effect after a restart")
	}
	s.fileSnapshot = file
	s.state.SetFile(file)
	if next != nil {
		s.staticJSON = file.Bootstrap.StaticResources
		s.updateSubscriptions()
		s.updateResourceCounts()
	}
	free := func(t resourceKey) bool { return !s.state.IsReserved(t.url, t.name) }
	if plane := s.mainChannel(); plane != nil && slices.ContainsFunc(taken, free) {
		plane.reconnect() // the control plane sends the resources again that were rejected for their name
	}
	return nil
}

// resourceKey is the type and name of a resource.
type resourceKey struct{ url, name string }

// nameConflicts returns the rejected resources of the control plane whose names the file defines.
func (s *Source) nameConflicts() (all []resourceKey) {
	plane := s.mainChannel()
	if plane == nil {
		return nil
	}
	for _, url := range []string{resource.ClusterType, resource.ListenerType} {
		for name := range plane.history.Rejected(url) {
			if s.state.IsReserved(url, name) {
				all = append(all, resourceKey{url, name})
			}
		}
	}
	return all
}

// equalExceptStatic reports whether two bootstraps are equal except for static_resources.
func equalExceptStatic(a, b config.Bootstrap) bool {
	a.StaticResources, b.StaticResources = nil, nil
	return reflect.DeepEqual(a, b)
}

// ApplyFileChanges is ApplyFile for a file in which only the given clusters and route tables are
// new or changed, as with a service registry. Its cost is that of the changes and of copying the
// list of clusters. The caller has called ApplyFile before, with the same tables. After an error,
// some of the clusters may be active until the next ApplyFile.
func (s *Source) ApplyFileChanges(ctx context.Context, file *config.Snapshot, clusters []*config.Cluster, tables []*config.RouteTable) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if err := s.state.CheckNameConflicts(&config.Snapshot{Clusters: clusters}); err != nil {
		return err
	}
	whole := func() *config.Snapshot { return s.state.Snapshot(file) }
	if len(clusters) > 0 {
		if err := s.opts.ApplyClusters(ctx, clusters, whole); err != nil {
			return err
		}
	}
	if len(tables) > 0 {
		apply := s.opts.ApplyRoutes
		if apply == nil {
			apply = func(ctx context.Context, _ []*config.RouteTable, whole func() *config.Snapshot) error {
				return s.opts.Apply(ctx, whole())
			}
		}
		if err := apply(ctx, tables, whole); err != nil {
			return err
		}
	}
	s.fileSnapshot = file
	s.state.SetFile(file)
	return nil
}

// mainChannel returns the ADS channel; nil if the file configures no control plane.
func (s *Source) mainChannel() *channel {
	if s.boot.ADSCluster == "" {
		return nil
	}
	return s.channels[0]
}

// addStaticResources adds static_resources to the state. An error is of type FieldErrors.
func (s *Source) addStaticResources(static *bootstrap.StaticResources) error {
	now := time.Now()
	if err := s.state.SetStatic(static, now); err != nil {
		return err
	}
	if _, next := s.state.Reconcile(now); !next.IsZero() { // ApplyFile applies it
		s.deadlineTimer.Reset(next.Sub(now))
	}
	s.state.Checkpoint()
	return nil
}

// updateStaticResources adds the static_resources of a reloaded file to the state and reconciles
// it. The caller rolls back if it cannot apply them. It returns nil if they are unchanged, or
// before the first ApplyFile, because New has added them.
func (s *Source) updateStaticResources(b config.Bootstrap) (next *bootstrap.StaticResources, err error) {
	if s.fileSnapshot == nil || bytes.Equal(b.StaticResources, s.staticJSON) {
		return nil, nil //nolint:nilnil // nothing is to be done
	}
	if next, err = bootstrap.ReadStatic(b.StaticResources); err != nil {
		return nil, err
	}
	now := time.Now()
	s.state.Checkpoint()
	if err := s.state.SetStatic(next, now); err != nil {
		return next, err
	}
	_, late := s.state.Reconcile(now)
	s.deadlineTimer.Stop()
	if !late.IsZero() {
		s.deadlineTimer.Reset(late.Sub(now))
	}
	return next, nil
}

// targetsChanged reports whether next has another address or TLS configuration for a control plane
// in use.
func (s *Source) targetsChanged(next *bootstrap.StaticResources) bool {
	targets := next.Targets()
	for name, was := range s.boot.Targets {
		asked := name == s.boot.LRSCluster || slices.ContainsFunc(s.channels, func(f *channel) bool { return f.name == name })
		is := targets[name]
		if asked && (is.Address != was.Address || is.IsUnix != was.IsUnix || !reflect.DeepEqual(is.TLS, was.TLS)) {
			return true
		}
	}
	return false
}
