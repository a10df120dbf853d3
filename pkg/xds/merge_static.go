package xds

import (
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/layers"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/pkg/xds/state"
)

// MergeStatic returns the configuration of a file, including the static_resources that need no
// control plane. It also returns the fields that have no effect or need a warning. It does not bind
// addresses, read files or open connections. It returns the error that New or the first SetFile
// would return, or an error for routes to unknown clusters. Each error is of type
// bootstrap.FieldErrors.
func MergeStatic(file *config.Snapshot, capabilities resource.Capabilities) (merged *config.Snapshot, ignored bootstrap.FieldErrors, err error) {
	boot, static, err := bootstrap.Read(file.Bootstrap, capabilities)
	if err != nil {
		return nil, nil, err
	}
	fileLayer := layers.NewFile(file)
	owner := func(typeURL, name string) string { return fileLayer.Owner(kindOf(typeURL), name) }
	s := state.New(state.Options{Bootstrap: boot, OnDemand: file.Bootstrap.OnDemand, Owner: owner, Capabilities: capabilities})
	now := time.Now()
	if err := s.SetStatic(static, now); err != nil {
		return nil, nil, err
	}
	if err := s.CheckStaticNames(); err != nil {
		return nil, nil, err
	}
	if !boot.Subscriptions.CDS && !file.Dubbo.Enable { // otherwise further clusters can appear
		if ignored, err = static.CheckClusters(file); err != nil {
			return nil, nil, err
		}
	}
	ignored = append(ignored, boot.Ignored...)
	for _, r := range static.Secrets {
		if r.Name == "" {
			ignored = append(ignored, bootstrap.FieldError{Field: r.Field, Reason: "has no name: nothing can refer to it"})
		}
	}
	s.Reconcile(now)
	ignoredByResource := s.Ignored()
	for _, url := range []string{resource.ListenerType, resource.ClusterType, resource.SecretType} {
		for _, r := range static.OfType(url) {
			for _, field := range ignoredByResource[state.ResourceKey{Type: url, Name: r.Name}] {
				ignored = append(ignored, bootstrap.FieldError{Field: r.Field + "." + field})
			}
		}
	}
	for _, l := range boot.Layers {
		if l.Values != nil {
			for _, field := range l.Values.Ignored() {
				ignored = append(ignored, bootstrap.FieldError{Field: field})
			}
		}
	}
	return layers.Merge(file, s.AppendTo), ignored, nil
}
