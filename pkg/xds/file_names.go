package xds

import (
	"bytes"
	"reflect"
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// fileNames are the names that the file defines, which a control plane cannot use.
type fileNames struct {
	snapshot                    *config.Snapshot
	clusters, listeners, tables map[string]bool
}

func fileNamesOf(base *config.Snapshot) fileNames {
	return fileNames{
		snapshot:  base,
		clusters:  namesOf(base.Clusters, func(c *config.Cluster) string { return c.Name }),
		listeners: namesOf(base.Listeners, func(l *config.Listener) string { return l.Name }),
		tables:    namesOf(base.Routes, func(t *config.RouteTable) string { return t.Name }),
	}
}

func namesOf[T any](all []T, name func(T) string) map[string]bool {
	names := make(map[string]bool, len(all))
	for _, one := range all {
		names[name(one)] = true
	}
	return names
}

// isReserved reports whether the file defines a resource, by itself or in static_resources. For
// SecretType it covers only secrets without a source of their own.
func (s *Source) isReserved(typeURL, name string) bool {
	if s.fileNames.snapshot != s.fileSnapshot {
		s.fileNames = fileNamesOf(s.fileSnapshot)
	}
	switch typeURL {
	case resource.ClusterType:
		return s.fileNames.clusters[name] || s.state.staticNames.clusters[name]
	case resource.ListenerType:
		return s.fileNames.listeners[name] || s.state.staticNames.listeners[name]
	case resource.RouteType:
		return s.fileNames.tables[name]
	case resource.SecretType:
		return s.state.staticNames.secrets[name]
	}
	return false
}

// mainChannel returns the ADS channel; nil if the file configures no control plane.
func (s *Source) mainChannel() *xdsChannel {
	if s.boot.adsCluster == "" {
		return nil
	}
	return s.channels[0]
}

// addStaticResources adds static_resources to the state. An error is of type FieldErrors.
func (s *Source) addStaticResources() error {
	now := time.Now()
	s.staticResources, s.boot.staticResources = s.boot.staticResources, nil // so that boot does not keep them after a reload
	if err := s.staticResources.addTo(s.state, nil, s.boot, s.capabilities(s.state.runtime), now); err != nil {
		return err
	}
	if _, next := s.state.reconcile(now); !next.IsZero() { // ApplyFile applies it
		s.deadlineTimer.Reset(next.Sub(now))
	}
	s.state.commit()
	return nil
}

// updateStaticResources adds the static_resources of a reloaded file to the state and reconciles
// it. The caller rolls back if it cannot apply them. It returns nil if they are unchanged, or
// before the first ApplyFile, because New has added them.
func (s *Source) updateStaticResources(b config.Bootstrap) (next *staticResources, err error) {
	if s.fileSnapshot == nil || bytes.Equal(b.StaticResources, s.staticJSON) {
		return nil, nil //nolint:nilnil // nothing is to be done
	}
	if next, err = readStaticResources(b.StaticResources); err != nil {
		return nil, err
	}
	now := time.Now()
	s.state.checkpoint()
	if err := next.addTo(s.state, s.staticResources, s.boot, s.capabilities(s.state.runtime), now); err != nil {
		return next, err
	}
	_, late := s.state.reconcile(now)
	s.deadlineTimer.Stop()
	if !late.IsZero() {
		s.deadlineTimer.Reset(late.Sub(now))
	}
	return next, nil
}

// targetsChanged reports whether next has another address or TLS configuration for a control plane
// in use.
func (s *Source) targetsChanged(next *staticResources) bool {
	targets := next.targets()
	for name, was := range s.boot.targets {
		asked := name == s.boot.lrsCluster || slices.ContainsFunc(s.channels, func(f *xdsChannel) bool { return f.name == name })
		is := targets[name]
		if asked && (is.address != was.address || is.isUnix != was.isUnix || !reflect.DeepEqual(is.tls, was.tls)) {
			return true
		}
	}
	return false
}
