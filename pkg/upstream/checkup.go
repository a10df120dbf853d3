package upstream

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream/health"
)

// configureChecks has the hosts checked as cfg says, actively and passively. c.mu is
// held. Hosts that leave stop their checks themselves, when they retire.
func (c *Cluster) configureChecks(cfg *config.Cluster, hosts []*Host) {
	for _, h := range hosts {
		h.checkAs(cfg.Health)
	}
	if cfg.OnDemand.Asleep {
		c.detect(nil, nil) // there is nobody to look at
		return
	}
	c.detect(cfg.Outlier, hosts)
}

// checkable returns what keeps the hosts of a cluster from being checked.
func (e *env) checkable(cfg *config.Cluster) error {
	if cfg.Health == nil {
		return nil
	}
	_, err := health.NewProbe(cfg.Health, checkTarget{}, e.codec(cfg.Health))
	if err != nil {
		return fmt.Errorf("cluster %s: %w", cfg.Name, err)
	}
	return nil
}

// codec returns that of the protocol of checks, nil if it has none.
func (e *env) codec(cfg *config.HealthCheck) xprotocol.Codec {
	return e.Codecs[config.Protocol(cfg.Protocol)] // heartbeats are named as their protocols
}

// activeCheck is the active checks of a host under one configuration.
type activeCheck struct {
	host   *Host               // immutable
	config *config.HealthCheck // immutable
	check  *health.Check       // guarded by host.mu; nil while it starts
}

// checkAs has the host checked as cfg says; nil: not at all. What checks found
// stays until those of a new configuration find something else.
func (h *Host) checkAs(cfg *config.HealthCheck) {
	h.mu.Lock()
	old := h.checkup
	if h.retired || old == nil && cfg == nil || old != nil && old.config.Equal(cfg) {
		h.mu.Unlock()
		return
	}
	turned := false
	h.checkup = nil
	if cfg == nil {
		turned = h.health.end(failing)
	} else if probe, err := health.NewProbe(cfg, checkTarget{h}, h.cluster.env.codec(cfg)); err == nil { // checkable has said so
		u := &activeCheck{host: h, config: cfg}
		u.check = h.cluster.env.checks.Start(cfg, probe, u.report)
		h.checkup = u
	}
	h.mu.Unlock()
	if old != nil {
		old.check.Stop()
	}
	if turned {
		h.turned(HostUp)
	}
}

// stopChecks is called with h.mu held, when the host retires.
func (h *Host) stopChecks() {
	if h.checkup != nil {
		h.checkup.check.Stop()
		h.checkup = nil
	}
}

// report is what the checks call.
func (u *activeCheck) report(r health.Result) {
	h := u.host
	h.mu.Lock()
	if h.checkup != u { // they have been replaced, or the host is gone
		h.mu.Unlock()
		return
	}
	was := h.health.has(failing)
	var turned bool
	if r.Healthy {
		turned = h.health.end(failing)
	} else {
		turned = h.health.add(failing)
	}
	h.mu.Unlock()
	u.tell(r, was)
	if turned && r.Healthy {
		h.turned(HostUp)
	} else if turned {
		h.turned(HostDown)
	}
	if r.Err == nil && u.config.HTTP.Port == 0 {
		h.answered()
	}
	if r.Err == nil && r.Healthy {
		h.passedCheck()
	}
}

// tell logs and counts what has changed; was says that the host was failing.
func (u *activeCheck) tell(r health.Result, was bool) {
	h := u.host
	c := h.cluster
	if r.Err != nil {
		if c.env.Meter != nil {
			c.openAccount() // requests may not have come yet
		}
		c.count(CheckFailed)
	}
	switch {
	case r.Healthy && was:
		c.env.Log.Info("upstream host passes its health checks", logCluster, c.name, logHost, h.address)
	case !r.Healthy && !was:
		c.env.Log.Warn("upstream host fails its health checks", logCluster, c.name, logHost, h.address,
			logProtocol, u.config.Protocol, logError, r.Err)
	}
}

// checkTarget is a host as its checks see it.
type checkTarget struct{ host *Host }

// Dial is health.Host's.
func (c checkTarget) Dial(ctx context.Context, port uint16, deadline time.Time) (*network.Conn, error) {
	h, err := c.at(port)
	if err != nil {
		return nil, err
	}
	return h.cluster.env.Dial(ctx, h, deadline)
}

// Connect is health.Host's.
func (c checkTarget) Connect(ctx context.Context, speaks config.Protocol, port uint16, deadline time.Time) (health.Connection, error) {
	h, err := c.at(port)
	if err != nil {
		return nil, err
	}
	connector := h.cluster.env.Connectors[speaks]
	if connector == nil {
		return nil, fmt.Errorf("no connector speaks %q", speaks)
	}
	return announcing(connector, nil).Connect(ctx, h, deadline, func(bool) {})
}

// Authority is health.Host's: the host's name, if it has one.
func (c checkTarget) Authority() string {
	if entry := c.host.Config(); entry.Hostname != "" {
		return entry.Hostname
	}
	if strings.HasPrefix(c.host.address, "/") || strings.HasPrefix(c.host.address, "@") {
		return "localhost"
	}
	return c.host.address
}

// at returns the host, or one like it that listens on another port and belongs to
// no cluster's hosts.
func (c checkTarget) at(port uint16) (*Host, error) {
	if port == 0 {
		return c.host, nil
	}
	name, _, err := net.SplitHostPort(c.host.address)
	if err != nil {
		return nil, fmt.Errorf("a check of port %d: %w", port, err)
	}
	entry := *c.host.Config()
	entry.Address = net.JoinHostPort(name, strconv.Itoa(int(port)))
	return newHost(c.host.cluster, &entry), nil
}
