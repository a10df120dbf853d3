// Package peermetadata implements the peer_metadata filter. With it, sidecars of an Istio mesh
// exchange the identities of their workloads.
package peermetadata

import (
	"context"
	"errors"
	"strings"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/workload"
)

// Config is the filter's configuration.
type Config struct {
	DownstreamDiscovery   bool `key:"downstream_discovery" doc:"Reads the identity of the peer from requests, and removes it from them." default:"false" example:"true"`
	UpstreamDiscovery     bool `key:"upstream_discovery" doc:"Reads the identity of the peer from responses, and removes it from them." default:"false" example:"true"`
	DownstreamPropagation bool `key:"downstream_propagation" doc:"Sends the identity of this sidecar to clients that sent theirs." default:"false" example:"true"`
	UpstreamPropagation   bool `key:"upstream_propagation" doc:"Sends the identity of this sidecar to hosts." default:"false" example:"true"`
	SkipExternalClusters  bool `key:"skip_external_clusters" doc:"Does not send the identity to clusters that the control plane marks as outside the mesh, nor to PassthroughCluster." default:"false" example:"true"`

	Node     string            `key:"node" doc:"Node ID of this sidecar." example:"\"sidecar~10.0.0.7~reviews-v1-7d8f-x2z.default~default.svc.cluster.local\""`
	Workload workload.Workload `key:"workload" doc:"The workload of this sidecar."`
}

// Validate checks the configuration after it was decoded.
func (c *Config) Validate() error {
	if (c.DownstreamPropagation || c.UpstreamPropagation) && c.Node == "" && c.Workload == (workload.Workload{}) {
		return errors.New("downstream_propagation and upstream_propagation require node or workload")
	}
	return nil
}

// Factory returns the filter factory. Its filters share a cache of peers.
func Factory() filter.StreamFilterFactory {
	peers := new(peerCache)
	return filter.StreamFilterFactory{
		Name:   "peer_metadata",
		Stage:  filter.AfterRoute,
		Config: func() any { return new(Config) },
		New: func(cfg any, env filter.Env) (filter.Filter, error) {
			return build(cfg.(*Config), env, peers), nil //nolint:forcetypeassert // a value that StreamFilterFactory.Config created
		},
		Metrics: []metrics.Metric{malformedMetric()},
	}
}

func malformedMetric() metrics.Metric {
	return metrics.Metric{
		Name: "weft_filter_peer_metadata_malformed_total", Kind: metrics.KindCounter,
		Help: "Requests and responses whose x-envoy-peer-metadata is malformed; the peer is unknown.",
	}
}

func build(c *Config, env filter.Env, peers *peerCache) filter.Filter {
	m := peerMetadata{Config: *c, peers: peers, cluster: env.Cluster, malformed: env.Metrics.Counter(malformedMetric())}
	if c.Workload != (workload.Workload{}) {
		m.localMetadata = c.Workload.Metadata()
	}
	return func(next protocol.Service) protocol.Service {
		m := m
		m.next = next
		return &m
	}
}

// peerMetadata reads and writes the peer headers of requests and responses. Only peers and
// malformed change; filters share them.
type peerMetadata struct {
	Config
	localMetadata string // header value for the workload of this sidecar; "": unknown
	next          protocol.Service
	peers         *peerCache
	cluster       func(name string) *config.Cluster
	malformed     *metrics.Counter
}

// Metadata keys that record which peer headers the client sent. The response gets the same headers.
const (
	keyClientSentID       = "downstream_peer_told_id"
	keyClientSentMetadata = "downstream_peer_told_metadata"
)

// Start implements protocol.Service. It does not change RPC calls.
func (m *peerMetadata) Start(ctx context.Context, x *protocol.Exchange) error {
	h := &x.Request.Header
	if x.Request.Method == "" {
		return m.next.Start(ctx, x)
	}
	if m.DownstreamDiscovery {
		value, ok := h.Lookup(workload.FieldMetadata)
		if ok && m.DownstreamPropagation {
			x.Metadata.Add(workload.Namespace, keyClientSentMetadata, "")
		}
		m.storePeer(x, workload.KeyDownstream, value)
		if _, hasID := h.Lookup(workload.FieldID); hasID && m.DownstreamPropagation {
			x.Metadata.Add(workload.Namespace, keyClientSentID, "")
		}
	}
	if m.DownstreamDiscovery || m.UpstreamPropagation {
		removePeerHeaders(h)
	}
	if m.UpstreamPropagation && !m.isExcluded(x.Record.TargetCluster) {
		m.addPeerHeaders(h, true, true)
	}
	if m.UpstreamDiscovery || m.DownstreamPropagation {
		x.PushFinisher(m)
	}
	return m.next.Start(ctx, x)
}

// removePeerHeaders removes the peer headers of the client, also in spellings with underscores,
// which some applications accept. A host receives these headers only from this filter.
func removePeerHeaders(h *protocol.Header) {
	for i := h.Len() - 1; i >= 0; i = min(i, h.Len()) - 1 {
		if name := h.At(i).Name; protocol.EqualFoldUnderscore(name, workload.FieldID) || protocol.EqualFoldUnderscore(name, workload.FieldMetadata) {
			h.Del(name)
		}
	}
}

// Finish implements protocol.Finisher. It does not change failed requests, whose local replies have
// no peer headers.
func (m *peerMetadata) Finish(_ context.Context, x *protocol.Exchange, err error) error {
	if err != nil {
		return err
	}
	h := &x.Response.Header
	if m.UpstreamDiscovery {
		if value, ok := h.Lookup(workload.FieldMetadata); ok {
			m.storePeer(x, workload.KeyUpstream, value)
			h.Del(workload.FieldMetadata)
		}
		h.Del(workload.FieldID)
	}
	if m.DownstreamPropagation {
		_, hadID := x.Metadata.Lookup(workload.Namespace, keyClientSentID)
		_, hadMetadata := x.Metadata.Lookup(workload.Namespace, keyClientSentMetadata)
		m.addPeerHeaders(h, hadID, hadMetadata)
	}
	return nil
}

// storePeer parses a peer header value and stores the workload in the metadata of x, under key. It
// ignores an empty value.
func (m *peerMetadata) storePeer(x *protocol.Exchange, key, value string) {
	if value == "" {
		return
	}
	text, ok := m.peers.workloadText(value)
	if !ok {
		m.malformed.Add(1)
		return
	}
	x.Metadata.Set(workload.Namespace, key, text)
}

// addPeerHeaders sets the peer headers of this sidecar: the node if addID is set, the workload if
// addMetadata is set.
func (m *peerMetadata) addPeerHeaders(h *protocol.Header, addID, addMetadata bool) {
	if addID && m.Node != "" {
		h.Set(workload.FieldID, m.Node)
	}
	if addMetadata && m.localMetadata != "" {
		h.Set(workload.FieldMetadata, m.localMetadata)
	}
}

// passthroughCluster is Istio's name for the cluster of unknown destinations.
const passthroughCluster = "PassthroughCluster"

// isExcluded reports whether hosts of the cluster get no peer headers.
func (m *peerMetadata) isExcluded(cluster string) bool {
	if m.SkipExternalClusters && strings.HasPrefix(cluster, passthroughCluster) {
		return true
	}
	c := m.cluster(cluster)
	return c != nil && (c.Mesh.NoPeerMetadata || m.SkipExternalClusters && c.Mesh.External)
}
