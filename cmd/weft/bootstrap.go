//go:build !noxds

package main

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"slices"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/xds"
	"github.com/weft-proxy/weft/pkg/xds/bootstrap"
	"github.com/weft-proxy/weft/pkg/xds/resource"
)

// mergeStatic reads the Envoy bootstrap of a file. merged is the file together with its
// static_resources, except the resources that depend on a control plane. merged is nil if the
// diagnostics contain errors.
func mergeStatic(file *configjson.File) (merged *config.Snapshot, diagnostics document.Diagnostics) {
	if !hasBootstrap(file.Snapshot) {
		return file.Snapshot, nil
	}
	merged, ignored, err := xds.MergeStatic(file.Snapshot, xdsCapabilities())
	var fieldErrors bootstrap.FieldErrors
	switch {
	case errors.As(err, &fieldErrors):
		for _, e := range fieldErrors {
			diagnostics = append(diagnostics, file.Diagnose(document.Error, e.Field, e.Reason))
		}
	case err != nil:
		diagnostics = append(diagnostics, file.Diagnose(document.Error, "", err.Error()))
	}
	for _, e := range ignored {
		diagnostics = append(diagnostics, file.Diagnose(document.Warning, e.Field, cmp.Or(e.Reason, "has no effect")))
	}
	if err == nil {
		unreadable, inFiles := xds.CheckFiles(file.Snapshot.Bootstrap, xdsCapabilities())
		for _, e := range unreadable {
			diagnostics = append(diagnostics, file.Diagnose(document.Error, e.Field, e.Reason))
		}
		diagnostics = append(diagnostics, inFiles...)
	}
	slices.SortStableFunc(diagnostics, func(a, b document.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return merged, diagnostics
}

// xdsCapabilities returns what the resources of bootstraps and control planes may use.
func xdsCapabilities() resource.Capabilities {
	return resource.Capabilities{Filters: streamFilters(), ConnectionFilters: connectionFilters(), CheckRules: true}
}

// hasBootstrap reports whether a file has dynamic_resources or static_resources.
func hasBootstrap(file *config.Snapshot) bool {
	return len(file.Bootstrap.DynamicResources)+len(file.Bootstrap.StaticResources) > 0
}

// warnNewBootstrap warns that a bootstrap takes effect after a restart if the file had none when the
// process started. It returns an error if there would be no listeners until then.
func warnNewBootstrap(c *controlPlane, file *config.Snapshot, log *slog.Logger) error {
	switch {
	case c != nil || !hasBootstrap(file):
		return nil
	case len(file.Listeners) == 0:
		return errors.New("static_resources and dynamic_resources take effect only after a restart, because the file had none when weft started, and the file has no other listeners")
	}
	log.Warn("the change of static_resources and dynamic_resources takes effect after a restart, because the file had none when weft started")
	return nil
}

// changedBootstrapKeys returns the keys of the bootstrap that have changed and take effect after a
// restart. It returns none if neither the initial file nor next has a bootstrap. c is the control
// plane of the initial file, or nil if that file has no bootstrap. The caller has applied next.
func changedBootstrapKeys(c *controlPlane, initial, next *config.Snapshot) (keys []string) {
	if c == nil && !hasBootstrap(next) {
		return nil
	}
	a, b := &initial.Bootstrap, &next.Bootstrap
	for _, setting := range []struct {
		key     string
		changed bool
	}{
		{"node", !bytes.Equal(a.Node, b.Node)},
		{"static_resources", c == nil && len(b.StaticResources) > 0 || c != nil && c.TargetsChanged()},
		{"dynamic_resources", !bytes.Equal(a.DynamicResources, b.DynamicResources)},
		{"layered_runtime", !bytes.Equal(a.LayeredRuntime, b.LayeredRuntime)},
		{"cluster_manager.load_stats_config", !bytes.Equal(a.LoadStats, b.LoadStats)},
		{"xds_cache", a.Cache != b.Cache},
		{"xds_lazy", a.OnDemand != b.OnDemand},
		{"xds_unknown_fields", a.UnknownFields != b.UnknownFields},
		{"xds_status", a.CSDSAddress != b.CSDSAddress},
	} {
		if setting.changed {
			keys = append(keys, setting.key)
		}
	}
	return keys
}
