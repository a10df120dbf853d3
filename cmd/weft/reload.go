package main

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/inspect"
)

// reloadRequest is a request for a reload. result receives the result; it is nil or buffered.
type reloadRequest struct{ result chan<- inspect.Reload }

// serveReloads reads the file again for each request, until ctx ends.
func (p *process) serveReloads(ctx context.Context) {
	for {
		select {
		case r := <-p.reloads:
			result := p.reload(ctx)
			if r.result != nil {
				r.result <- result
			}
		case <-ctx.Done():
			return
		}
	}
}

// requestReload requests a reload without waiting for it. It does nothing if a reload is pending,
// because the pending reload will read the current file.
func (p *process) requestReload() {
	select {
	case p.reloads <- reloadRequest{}:
	default:
	}
}

// reloadNow reads the file again and returns the result.
func (p *process) reloadNow(ctx context.Context) (inspect.Reload, error) {
	results := make(chan inspect.Reload, 1)
	select {
	case p.reloads <- reloadRequest{results}:
	case <-ctx.Done():
		return inspect.Reload{}, ctx.Err()
	}
	select {
	case r := <-results:
		return r, nil
	case <-ctx.Done():
		return inspect.Reload{}, ctx.Err()
	}
}

// reload reads the file again. If it rejects the file, it reports the reasons and the previous
// configuration stays active. A shutdown aborts the reload.
func (p *process) reload(ctx context.Context) inspect.Reload {
	result := inspect.Reload{Source: p.flags.name()}
	if p.flags.path == stdin {
		return p.rejectReload(result, "the configuration came from standard input, which cannot be read again")
	}
	file, diagnostics := p.flags.open()
	for _, d := range diagnostics {
		result.Problems = append(result.Problems, d.Error())
	}
	if file == nil {
		return p.rejectReload(result)
	}
	p.flags.override(file.Snapshot)
	if p.shuttingDown.Load() {
		return p.rejectReload(result, errShuttingDown.Error())
	}
	if err := p.apply(ctx, file); err != nil {
		if p.shuttingDown.Load() {
			err = errShuttingDown
		}
		return p.rejectReload(result, err.Error())
	}
	result.Applied = true
	result.Restart = p.applyProcessSettings(file.Snapshot)
	p.log.Info("configuration applied", "file", p.flags.name(), "warnings", len(diagnostics))
	return result
}

var errShuttingDown = errors.New("weft is shutting down")

// rejectReload records that a reload was rejected.
func (p *process) rejectReload(result inspect.Reload, reasons ...string) inspect.Reload {
	result.Problems = append(result.Problems, reasons...)
	for _, r := range result.Problems {
		p.log.Error("configuration rejected, the previous one stays active", "reason", r)
	}
	state := *p.state.Load()
	state.rejected = &inspect.Rejection{At: time.Now(), Reasons: result.Problems}
	p.state.Store(&state)
	p.metrics.Counter(metrics.ConfigReloads, metrics.ResultRejected).Add(1)
	return result
}

// applyProcessSettings applies the settings that proxy.Server does not apply, such as the log. It
// returns the changed keys that take effect after a restart. The caller has applied next.
func (p *process) applyProcessSettings(next *config.Snapshot) (restart []string) {
	p.level.Set(levelOf(next.Server.Log.Level))
	if err := p.output.redirect(next.Server.Log); err != nil {
		p.log.Error("cannot change the log output, the previous one stays", "error", err)
	}
	if err := p.movePIDFile(next.Server.PIDFile); err != nil {
		p.log.Error("cannot change the pid file, the previous one stays", "error", err)
	}
	if n := next.Server.MaxProcs; n > 0 {
		runtime.GOMAXPROCS(n)
	} else if p.initialConfig.Server.MaxProcs > 0 {
		runtime.SetDefaultGOMAXPROCS()
	}
	for _, key := range restartOnly(p.initialConfig, next) {
		p.log.Warn("a change takes effect after a restart", "key", key)
		restart = append(restart, key)
	}
	// warnNewBootstrap and the control plane log changes of the bootstrap.
	return append(restart, changedBootstrapKeys(p.controlPlane, p.initialConfig, next)...)
}

// restartOnly returns those keys of admin, pprof, metrics, the log format and Dubbo services that
// differ from the initial file. They take effect only at the start of a process.
func restartOnly(initial, next *config.Snapshot) (keys []string) {
	a, b := initial.Admin, next.Admin
	switch {
	case (a == nil) != (b == nil):
		keys = append(keys, "admin")
	case a != nil:
		for _, setting := range []struct {
			key     string
			changed bool
		}{
			{"admin.address", a.Address != b.Address || a.Mode != b.Mode},
			{"admin.allowed_hosts", !reflect.DeepEqual(a.Hosts, b.Hosts)},
			{"pprof.debug", a.Pprof != b.Pprof},
		} {
			if setting.changed {
				keys = append(keys, setting.key)
			}
		}
	}
	if initial.Profiler != next.Profiler {
		keys = append(keys, "pprof.port_value")
	}
	if !reflect.DeepEqual(initial.Metrics.Prometheus, next.Metrics.Prometheus) {
		keys = append(keys, "metrics.sinks")
	}
	if initial.Server.Log.JSON != next.Server.Log.JSON {
		keys = append(keys, "servers[0].default_log_format")
	}
	if (initial.Dubbo.Enable || next.Dubbo.Enable) && !reflect.DeepEqual(initial.Dubbo, next.Dubbo) {
		keys = append(keys, "dubbo_registry")
	}
	return keys
}
