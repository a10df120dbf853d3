package main

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"time"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
)

// reloadRequest asks for a reload; answer, if it is not nil, gets the result and has room
// for it.
type reloadRequest struct{ answer chan<- admin.Reload }

// serveReloads reads the file again as often as it is asked to, until ctx ends.
func (p *process) serveReloads(ctx context.Context) {
	for {
		select {
		case r := <-p.reloads:
			result := p.reload(ctx)
			if r.answer != nil {
				r.answer <- result
			}
		case <-ctx.Done():
			return
		}
	}
}

// askReload asks for a reload without waiting for it. One that has not begun yet will read
// what is in the file now.
func (p *process) askReload() {
	select {
	case p.reloads <- reloadRequest{}:
	default:
	}
}

// reloadNow reads the file again and returns the result.
func (p *process) reloadNow(ctx context.Context) (admin.Reload, error) {
	answer := make(chan admin.Reload, 1)
	select {
	case p.reloads <- reloadRequest{answer}:
	case <-ctx.Done():
		return admin.Reload{}, ctx.Err()
	}
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return admin.Reload{}, ctx.Err()
	}
}

// reload reads the file again. A bad one is refused with its reasons, and what runs goes
// on. A reload that a shutdown overtakes is given up.
func (p *process) reload(ctx context.Context) admin.Reload {
	result := admin.Reload{Source: p.flags.name()}
	if p.flags.path == stdin {
		return p.refuse(result, "the configuration came from standard input, which cannot be read again")
	}
	file, diagnostics := p.flags.open()
	for _, d := range diagnostics {
		result.Problems = append(result.Problems, d.Error())
	}
	if file == nil {
		return p.refuse(result)
	}
	p.flags.override(file.Snapshot)
	if p.leaving.Load() {
		return p.refuse(result, errLeaving.Error())
	}
	if err := p.apply(ctx, file); err != nil {
		if p.leaving.Load() {
			err = errLeaving
		}
		return p.refuse(result, err.Error())
	}
	result.Applied = true
	result.Restart = p.applyRest(file.Snapshot)
	p.log.Info("configuration applied", "file", p.flags.name(), "warnings", len(diagnostics))
	return result
}

var errLeaving = errors.New("weft is shutting down")

// refuse records that a reload was refused.
func (p *process) refuse(result admin.Reload, reasons ...string) admin.Reload {
	result.Problems = append(result.Problems, reasons...)
	for _, r := range result.Problems {
		p.log.Error("configuration refused, the running one stays", "reason", r)
	}
	now := *p.state.Load()
	now.rejected = &rejection{at: time.Now(), reasons: result.Problems}
	p.state.Store(&now)
	p.metrics.Counter(metrics.ConfigReloads, metrics.ResultRejected).Add(1)
	return result
}

// applyRest applies what of a configuration is the process's and not the server's, and
// returns the keys that have changed since the start and take effect after a restart.
func (p *process) applyRest(next *config.Snapshot) (restart []string) {
	p.level.Set(levelOf(next.Server.Log.Level))
	if err := p.output.move(next.Server.Log); err != nil {
		p.log.Error("the log stays where it is", "error", err)
	}
	p.applying.Lock()
	err := p.movePID(next.Server.PIDFile)
	p.applying.Unlock()
	if err != nil {
		p.log.Error("the pid file stays where it is", "error", err)
	}
	if n := next.Server.Processor; n > 0 {
		runtime.GOMAXPROCS(n)
	} else if p.began.Server.Processor > 0 {
		runtime.SetDefaultGOMAXPROCS()
	}
	for _, one := range restartOnly(p.began, next) {
		p.later(one)
		restart = append(restart, one)
	}
	return restart
}

// later logs that a change of a key does not apply to the running process.
func (p *process) later(key string) {
	p.log.Warn("a change takes effect after a restart", "key", key)
}

// restartOnly returns the keys whose values a process keeps from its start and that differ
// between its first file and the next.
func restartOnly(began, next *config.Snapshot) (keys []string) {
	a, b := began.Admin, next.Admin
	switch {
	case (a == nil) != (b == nil):
		keys = append(keys, "admin")
	case a != nil:
		for _, one := range []struct {
			key     string
			changed bool
		}{
			{"admin.address", a.Address != b.Address || a.Mode != b.Mode},
			{"admin.allowed_hosts", !reflect.DeepEqual(a.Hosts, b.Hosts)},
			{"pprof.debug", a.Pprof != b.Pprof},
		} {
			if one.changed {
				keys = append(keys, one.key)
			}
		}
	}
	if !reflect.DeepEqual(began.Metrics.Prometheus, next.Metrics.Prometheus) {
		keys = append(keys, "metrics.sinks")
	}
	if began.Server.Log.JSON != next.Server.Log.JSON {
		keys = append(keys, "servers[0].default_log_format")
	}
	return keys
}
