package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// upstreamTLS holds the TLS clients of the active clusters. Clusters with equal settings share a
// client. It is safe for concurrent use, except for changes.
type upstreamTLS struct {
	reloader *credential.Reloader
	metrics  *metrics.Registry
	active   atomic.Pointer[upstreamTLSTable]
}

// upstreamTLSTable holds the clients of one configuration. It is immutable, except for previous.
type upstreamTLSTable struct {
	byCluster  map[string][]*credential.Client // by index: Cluster.TLS (may be nil), then AlternateTLS
	byContent  map[string]*credential.Client
	handshakes map[string]*handshakeRecorder // by cluster
	// previous is the previous table while exchanges may need it; nil after that.
	previous atomic.Pointer[upstreamTLSTable]
}

func newUpstreamTLS(store *credential.Reloader, registry *metrics.Registry) *upstreamTLS {
	c := &upstreamTLS{reloader: store, metrics: registry}
	c.active.Store(&upstreamTLSTable{})
	return c
}

// prepare makes the table for these clusters. The caller drops or commits it.
func (c *upstreamTLS) prepare(clusters []*config.Cluster) (*upstreamTLSTable, error) {
	old := c.active.Load()
	t := &upstreamTLSTable{
		byCluster: map[string][]*credential.Client{}, byContent: map[string]*credential.Client{},
		handshakes: map[string]*handshakeRecorder{},
	}
	t.previous.Store(old)
	for _, cluster := range clusters {
		if cluster.TLS == nil && len(cluster.AlternateTLS) == 0 {
			continue
		}
		all, err := c.clientsOf(cluster, t, old)
		if err != nil {
			c.rollback(t)
			return nil, fmt.Errorf("cluster %q: tls_context: %w", cluster.Name, err)
		}
		t.byCluster[cluster.Name] = all
		if t.handshakes[cluster.Name] = old.handshakes[cluster.Name]; t.handshakes[cluster.Name] == nil {
			t.handshakes[cluster.Name] = newHandshakeRecorder(c.metrics, metrics.ClusterHandshakes, cluster.Name)
		}
	}
	return t, nil
}

// clientsOf returns the clients of a cluster and reuses those of t and old. It adds all of them to
// t, even on an error.
func (c *upstreamTLS) clientsOf(cluster *config.Cluster, t, old *upstreamTLSTable) ([]*credential.Client, error) {
	all := make([]*credential.Client, 1+len(cluster.AlternateTLS))
	for i := range all {
		settings := cluster.TLS
		if i > 0 {
			settings = cluster.AlternateTLS[i-1]
		}
		if settings == nil {
			continue
		}
		content := fmt.Sprintf("%#v", *settings)
		client := t.byContent[content]
		if client == nil {
			client = old.byContent[content]
		}
		if client == nil {
			var err error
			if client, err = c.newClient(settings); err != nil {
				return nil, err
			}
		}
		t.byContent[content], all[i] = client, client
	}
	return all, nil
}

func (c *upstreamTLS) newClient(t *config.TLS) (*credential.Client, error) {
	context, err := stream.NewTLSContext(t, nil)
	if err != nil {
		return nil, err
	}
	return c.reloader.NewClient(context)
}

// rollback releases a table that was not committed.
func (c *upstreamTLS) rollback(t *upstreamTLSTable) { t.closeExcept(t.previous.Load()) }

// closeExcept closes the clients of t that other does not have.
func (t *upstreamTLSTable) closeExcept(other *upstreamTLSTable) {
	for content, client := range t.byContent {
		if other.byContent[content] != client {
			client.Close()
		}
	}
}

// commit activates t. The caller retires the previous table.
func (c *upstreamTLS) commit(t *upstreamTLSTable) {
	old := c.active.Swap(t)
	for name, count := range old.handshakes {
		if t.handshakes[name] == nil {
			count.close()
		}
	}
}

// retire closes the clients that t no longer has, after the exchanges of the previous table have
// ended. Each table is retired once.
func (c *upstreamTLS) retire(t *upstreamTLSTable) {
	if before := t.previous.Swap(nil); before != nil {
		before.closeExcept(t)
	}
}

// find returns the TLS client for hosts with that index (config.Host.TLS), or nil if the cluster
// was removed. It searches by name, because an unchanged cluster keeps the settings of an earlier
// configuration.
func (c *upstreamTLS) find(cluster string, which int) *credential.Client {
	for table := c.active.Load(); table != nil; table = table.previous.Load() {
		if all := table.byCluster[cluster]; which < len(all) && all[which] != nil {
			return all[which]
		}
	}
	return nil
}

// defaultHandshakeTimeout limits a handshake without a deadline.
const defaultHandshakeTimeout = 10 * time.Second

// handshake performs the TLS handshake with h on a new connection. alpn is the protocol to
// negotiate, "" for any. asked overrides the hostname. Its errors are Faults.
func (c *upstreamTLS) handshake(ctx context.Context, conn *network.Conn, h *upstream.Host, alpn string, asked credential.HostnameOverride, deadline time.Time) error {
	settings := h.TLS()
	if settings == nil {
		return nil
	}
	client := c.find(h.Cluster().Name(), h.Config().TLSIndex)
	if client == nil {
		return protocol.Faultf(protocol.ConnectFailure, "the cluster of %s was removed from the configuration", h.Name())
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(defaultHandshakeTimeout)
	}
	var offer []string
	if alpn != "" {
		offer = []string{alpn}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the handshake
	err := conn.ClientHandshake(client.ConfigForHostname(asked, peerName(h), h.Name(), offer), deadline)
	stop()
	if agreed := conn.TLS(); err == nil && len(settings.ALPN) == 0 && alpn == stream.ALPN(config.HTTP2) && agreed.Protocol != alpn {
		err = fmt.Errorf("the host chose %q instead of %q: %w", agreed.Protocol, alpn, errALPN)
	}
	if count := c.active.Load().handshakes[h.Cluster().Name()]; count != nil {
		count.count(err)
	}
	switch {
	case err == nil:
		return nil
	case network.IsTimeout(err):
		return protocol.Faultf(protocol.ConnectTimeout, "TLS handshake with %s: %w", h.Name(), err)
	}
	return protocol.Faultf(protocol.ConnectFailure, "TLS handshake with %s: %s: %w", h.Name(), credential.HandshakeFailureOf(err).Text(), err)
}

// errALPN reports that ALPN did not choose HTTP/2, which TLS requires (RFC 9113 3.2).
var errALPN = errors.New("ALPN")

// peerName returns the default name of h for TLS: its hostname, else its address.
func peerName(h *upstream.Host) string {
	if name := h.Config().Hostname; name != "" {
		return name
	}
	host, _, err := net.SplitHostPort(h.Name())
	if err != nil {
		return ""
	}
	host, _, _ = strings.Cut(host, "%") // a zone is valid only on this machine
	return host
}
