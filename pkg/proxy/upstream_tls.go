package proxy

import (
	"cmp"
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
// client. One goroutine at a time may call prepare, commit and rollback. find, dial, handshake and
// closePrevious are safe for concurrent use.
type upstreamTLS struct {
	reloader *credential.Reloader
	metrics  *metrics.Registry
	active   atomic.Pointer[upstreamTLSTable]
}

// upstreamTLSTable holds the clients of one configuration. It is immutable, except for previous.
type upstreamTLSTable struct {
	byCluster  map[string][]*credential.Client // by cluster name: the client for Cluster.TLS (may be nil), then those for AlternateTLS
	byContent  map[string]*credential.Client
	handshakes map[string]*handshakeRecorder // by cluster
	// previous is the previous table while exchanges may need it; nil after that.
	previous atomic.Pointer[upstreamTLSTable]
}

func newUpstreamTLS(reloader *credential.Reloader, registry *metrics.Registry) *upstreamTLS {
	u := &upstreamTLS{reloader: reloader, metrics: registry}
	u.active.Store(&upstreamTLSTable{})
	return u
}

// prepare creates the table for these clusters. The caller commits it or rolls it back.
func (u *upstreamTLS) prepare(clusters []*config.Cluster) (*upstreamTLSTable, error) {
	old := u.active.Load()
	t := &upstreamTLSTable{
		byCluster: map[string][]*credential.Client{}, byContent: map[string]*credential.Client{},
		handshakes: map[string]*handshakeRecorder{},
	}
	t.previous.Store(old)
	for _, cluster := range clusters {
		if cluster.TLS == nil && len(cluster.AlternateTLS) == 0 {
			continue
		}
		clients, err := u.clientsOf(cluster, t, old)
		if err != nil {
			u.rollback(t)
			return nil, fmt.Errorf("cluster %q: tls_context: %w", cluster.Name, err)
		}
		t.byCluster[cluster.Name] = clients
		if t.handshakes[cluster.Name] = old.handshakes[cluster.Name]; t.handshakes[cluster.Name] == nil {
			t.handshakes[cluster.Name] = newHandshakeRecorder(u.metrics, metrics.ClusterHandshakes, cluster.Name)
		}
	}
	return t, nil
}

// clientsOf returns the clients of a cluster and reuses those of t and old. It adds them to t, even
// if it returns an error.
func (u *upstreamTLS) clientsOf(cluster *config.Cluster, t, old *upstreamTLSTable) ([]*credential.Client, error) {
	clients := make([]*credential.Client, 1+len(cluster.AlternateTLS))
	for i := range clients {
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
			if client, err = u.newClient(settings); err != nil {
				return nil, err
			}
		}
		t.byContent[content], clients[i] = client, client
	}
	return clients, nil
}

func (u *upstreamTLS) newClient(t *config.TLS) (*credential.Client, error) {
	context, err := stream.NewTLSContext(t, nil)
	if err != nil {
		return nil, err
	}
	return u.reloader.NewClient(context)
}

// rollback releases a table that was not committed.
func (u *upstreamTLS) rollback(t *upstreamTLSTable) { t.closeExcept(t.previous.Load()) }

// closeExcept closes the clients of t that other does not have.
func (t *upstreamTLSTable) closeExcept(other *upstreamTLSTable) {
	for content, client := range t.byContent {
		if other.byContent[content] != client {
			client.Close()
		}
	}
}

// commit activates t. The caller then calls closePrevious.
func (u *upstreamTLS) commit(t *upstreamTLSTable) {
	old := u.active.Swap(t)
	for name, recorder := range old.handshakes {
		if t.handshakes[name] == nil {
			recorder.close()
		}
	}
}

// closePrevious closes the clients of the previous table that t does not have. The caller calls it
// once per table, after the exchanges of the previous table have ended.
func (u *upstreamTLS) closePrevious(t *upstreamTLSTable) {
	if previous := t.previous.Swap(nil); previous != nil {
		previous.closeExcept(t)
	}
}

// find returns the TLS client for hosts with that index (config.Host.TLSIndex), or nil if the
// cluster was removed. It searches by name, because an unchanged cluster keeps the settings of an
// earlier configuration.
func (u *upstreamTLS) find(cluster string, index int) *credential.Client {
	for table := u.active.Load(); table != nil; table = table.previous.Load() {
		if clients := table.byCluster[cluster]; index < len(clients) && clients[index] != nil {
			return clients[index]
		}
	}
	return nil
}

// defaultHandshakeTimeout limits a handshake without a deadline.
const defaultHandshakeTimeout = 10 * time.Second

// handshake performs the TLS handshake with h on a new connection. alpn lists the protocols to offer;
// empty: none. override replaces the hostname. Its errors are Faults.
func (u *upstreamTLS) handshake(ctx context.Context, conn *network.Conn, h *upstream.Host, alpn []string, override credential.HostnameOverride, deadline time.Time) error {
	settings := h.TLS()
	if settings == nil {
		return nil
	}
	client := u.find(h.Cluster().Name(), h.Config().TLSIndex)
	if client == nil {
		return protocol.Faultf(protocol.ConnectFailure, "the cluster of %s was removed from the configuration", h.Name())
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(defaultHandshakeTimeout)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the handshake
	err := conn.ClientHandshake(client.Config(peerOf(h, override), alpn), deadline)
	stop()
	if state := conn.TLS(); err == nil && len(settings.ALPN) == 0 && !h.HTTP().HTTP2WithoutALPN && len(alpn) == 1 && alpn[0] == stream.ALPN(config.HTTP2) && state.Protocol != alpn[0] {
		err = fmt.Errorf("the host chose %q instead of %q: %w", state.Protocol, alpn[0], errALPN)
	}
	if recorder := u.active.Load().handshakes[h.Cluster().Name()]; recorder != nil {
		recorder.count(err)
	}
	switch {
	case err == nil:
		return nil
	case network.IsTimeout(err):
		return protocol.Faultf(protocol.ConnectTimeout, "TLS handshake with %s: %w", h.Name(), err)
	}
	failure := credential.HandshakeFailureOf(err).Text()
	return protocol.Faultf(protocol.ConnectFailure, "TLS handshake with %s: %s: %w", h.Name(), failure, err).
		WithEnvoyReply(protocol.EnvoyReply{ResetReason: "remote connection failure", TransportFailure: "TLS_error: " + failure})
}

// errALPN reports that the host did not choose HTTP/2 by ALPN, as HTTP/2 over TLS requires (RFC
// 9113 3.2).
var errALPN = errors.New("HTTP/2 over TLS requires ALPN")

// peerOf describes h for TLS.
func peerOf(h *upstream.Host, override credential.HostnameOverride) credential.Peer {
	hostname := h.Config().Hostname
	return credential.Peer{Hostname: hostname, Name: cmp.Or(hostname, addressName(h)), Address: h.Name(), Override: override}
}

// addressName returns the address of h without the port.
func addressName(h *upstream.Host) string {
	host, _, err := net.SplitHostPort(h.Name())
	if err != nil {
		return ""
	}
	host, _, _ = strings.Cut(host, "%") // a zone is valid only on this machine
	return host
}
