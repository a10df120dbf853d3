package main

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/discovery/dns"
)

// discoveries returns the discovery of hosts for each cluster type that needs one.
func (p *process) discoveries() map[config.ClusterType]upstream.Discovery {
	return map[config.ClusterType]upstream.Discovery{
		config.ClusterStrictDNS:  p.resolver,
		config.ClusterLogicalDNS: p.resolver,
	}
}

// countLookup counts a DNS lookup by its outcome.
func (p *process) countLookup(outcome dns.Outcome) {
	label := metrics.ResultFailed
	switch outcome {
	case dns.Resolved:
		label = metrics.ResultOK
	case dns.NotFound:
		label = metrics.ResultNotFound
	case dns.TimedOut:
		label = metrics.ResultTimeout
	case dns.Failed:
	}
	p.metrics.Counter(metrics.DNSLookups, label).Add(1)
}
