package proxy

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// datagramHosts implements filter.HostLeaser.
type datagramHosts struct{ clusters *upstream.Set }

// Lease implements filter.HostLeaser.
func (d datagramHosts) Lease(name string, hash uint64, current filter.HostLease) (filter.HostLease, error) {
	cluster := d.clusters.Find(name)
	if cluster == nil {
		return nil, protocol.Faultf(protocol.NoCluster, "cluster %q is not defined", name)
	}
	var previous *upstream.HostLease
	old, ok := current.(*datagramLease)
	if ok {
		previous = old.HostLease
	}
	lease, err := cluster.Lease(hash, previous)
	if err != nil {
		return nil, err
	}
	h := lease.Host()
	if ok && old.Host() == h && !old.hostFailed.Load() {
		lease.Release()
		return current, nil
	}
	socket, err := dialDatagrams(h)
	if err != nil {
		lease.Release()
		return nil, protocol.NewFault(protocol.ConnectFailure, err)
	}
	return &datagramLease{HostLease: lease, socket: socket}, nil
}

// errUnixSocket reports a host whose address is a unix socket. Weft sends datagrams only by UDP.
var errUnixSocket = errors.New("the host has no IP address")

func dialDatagrams(h *upstream.Host) (*network.ConnectedUDP, error) {
	if unixaddr.Is(h.ResolvedAddress()) {
		return nil, fmt.Errorf("%s: %w", h.Name(), errUnixSocket)
	}
	return dialer(h).DialPacket(h.ResolvedAddress())
}

// datagramLease implements filter.HostLease.
type datagramLease struct {
	*upstream.HostLease
	socket     *network.ConnectedUDP
	hostFailed atomic.Bool // an error of the host was reported
}

// Report implements filter.HostLease.
func (l *datagramLease) Report(err error) {
	if err != nil {
		l.hostFailed.Store(true)
	}
	l.HostLease.Report(err)
}

// Socket implements filter.HostLease.
func (l *datagramLease) Socket() *network.ConnectedUDP { return l.socket }

// Release implements filter.HostLease.
func (l *datagramLease) Release() {
	l.socket.Close()
	l.HostLease.Release()
}
