package upstream

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream/health"
	"github.com/weft-proxy/weft/pkg/upstream/hosthealth"
)

// configureChecks starts the active checks and the outlier detection of the hosts according to cfg.
// The caller holds c.mu. Removed hosts stop their checks when they drain.
func (c *Cluster) configureChecks(cfg *config.Cluster, hosts []*Host) {
	for _, h := range hosts {
		h.setActiveCheck(cfg.HealthCheck)
	}
	if cfg.OnDemand.Unsubscribed {
		c.configureOutlierDetection(nil, nil) // there are no hosts to observe
		return
	}
	c.configureOutlierDetection(cfg.OutlierDetection, hosts)
}

// validateChecks returns an error if the hosts of a cluster cannot be checked as configured.
func (e *env) validateChecks(cfg *config.Cluster) error {
	if cfg.HealthCheck == nil {
		return nil
	}
	_, err := health.NewProbe(cfg.HealthCheck, checkTarget{}, e.codec(cfg.HealthCheck))
	if err != nil {
		return fmt.Errorf("cluster %s: %w", cfg.Name, err)
	}
	return nil
}

// codec returns the codec of the RPC protocol of heartbeat checks; nil for checks of other types.
func (e *env) codec(cfg *config.HealthCheck) xprotocol.Codec {
	return e.Codecs[config.Protocol(cfg.Protocol)] // a heartbeat check has the name of its protocol
}

// activeCheck holds the active checks of a host under one configuration.
type activeCheck struct {
	host   *Host               // immutable
	config *config.HealthCheck // immutable
	check  *health.Check       // guarded by host.mu
}

// setActiveCheck starts active checks of the host according to cfg. The health that previous checks
// reported stays until the new ones report another. If cfg is nil, setActiveCheck stops the checks
// and clears FailedCheck.
func (h *Host) setActiveCheck(cfg *config.HealthCheck) {
	h.mu.Lock()
	old := h.activeCheck
	if h.removed || old == nil && cfg == nil || old != nil && old.config.Equal(cfg) {
		h.mu.Unlock()
		return
	}
	changed := false
	h.activeCheck = nil
	if cfg == nil {
		changed = h.health.Clear(hosthealth.FailedCheck)
	} else if probe, err := health.NewProbe(cfg, checkTarget{h}, h.cluster.env.codec(cfg)); err == nil { // validateChecks has reported the error
		a := &activeCheck{host: h, config: cfg}
		a.check = h.cluster.env.checks.Start(cfg, probe, a.report)
		h.activeCheck = a
	}
	h.mu.Unlock()
	if old != nil {
		old.check.Stop()
	}
	if changed {
		h.healthChanged(HostUp)
	}
}

// stopChecks stops the active checks when the host is removed. The caller holds h.mu.
func (h *Host) stopChecks() {
	if h.activeCheck != nil {
		h.activeCheck.check.Stop()
		h.activeCheck = nil
	}
}

// report handles the result of a check.
func (a *activeCheck) report(r health.Result) {
	h := a.host
	h.mu.Lock()
	if h.activeCheck != a { // the checks were replaced, or the host was removed
		h.mu.Unlock()
		return
	}
	wasFailing := h.health.Has(hosthealth.FailedCheck)
	var changed bool
	if r.Healthy {
		changed = h.health.Clear(hosthealth.FailedCheck)
	} else {
		changed = h.health.Set(hosthealth.FailedCheck)
	}
	h.mu.Unlock()
	a.logChange(r, wasFailing)
	if changed && r.Healthy {
		h.healthChanged(HostUp)
	} else if changed {
		h.healthChanged(HostDown)
	}
	if r.Err == nil && a.config.HTTP.Port == 0 {
		h.recordAlive()
	}
	if r.Err == nil && r.Healthy {
		h.recordCheckPassed()
	}
}

// logChange counts a failed check, and logs when the host starts or stops failing its checks.
// wasFailing reports whether the host failed its checks before r.
func (a *activeCheck) logChange(r health.Result, wasFailing bool) {
	h := a.host
	c := h.cluster
	if r.Err != nil {
		if c.env.Meter != nil {
			c.openRecorder() // a cluster without requests has none yet
		}
		c.count(CheckFailed)
	}
	switch {
	case r.Healthy && wasFailing:
		c.env.Log.Info("upstream host passes its health checks", logCluster, c.name, logHost, h.address)
	case !r.Healthy && !wasFailing:
		c.env.Log.Warn("upstream host fails its health checks", logCluster, c.name, logHost, h.address,
			logProtocol, a.config.Protocol, logError, r.Err)
	}
}

// checkTarget adapts a Host to health.Host.
type checkTarget struct{ host *Host }

// Dial implements health.Host.
func (c checkTarget) Dial(ctx context.Context, port uint16, deadline time.Time) (*network.Conn, error) {
	h, err := c.hostAtPort(port)
	if err != nil {
		return nil, err
	}
	return h.cluster.env.Dial(ctx, h, deadline)
}

// Connect implements health.Host.
func (c checkTarget) Connect(ctx context.Context, proto config.Protocol, port uint16, deadline time.Time) (health.Connection, error) {
	h, err := c.hostAtPort(port)
	if err != nil {
		return nil, err
	}
	connector := h.cluster.env.Connectors[proto]
	if connector == nil {
		return nil, fmt.Errorf("no connector for protocol %q", proto)
	}
	return withDownstreamAddrs(connector, nil).Connect(ctx, h, deadline, func(bool) {})
}

// Authority implements health.Host. It returns the hostname of the host; without one, the address,
// or "localhost" for a unix socket.
func (c checkTarget) Authority() string {
	if entry := c.host.Config(); entry.Hostname != "" {
		return entry.Hostname
	}
	if unixaddr.Is(c.host.address) {
		return "localhost"
	}
	return c.host.address
}

// hostAtPort returns the host if port is 0, otherwise a copy of the host with that port. The copy
// is not one of the cluster's hosts.
func (c checkTarget) hostAtPort(port uint16) (*Host, error) {
	if port == 0 {
		return c.host, nil
	}
	host, _, err := net.SplitHostPort(c.host.address)
	if err != nil {
		return nil, fmt.Errorf("health check on port %d: %w", port, err)
	}
	entry := *c.host.Config()
	entry.Address = net.JoinHostPort(host, strconv.Itoa(int(port)))
	if resolved, _, err := net.SplitHostPort(entry.ResolvedAddress); err == nil {
		entry.ResolvedAddress = net.JoinHostPort(resolved, strconv.Itoa(int(port)))
	}
	return newHost(c.host.cluster, &entry), nil
}
