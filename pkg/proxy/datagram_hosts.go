package proxy

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// datagramHosts implements filter.HostLeaser.
type datagramHosts struct{ clusters *upstream.Set }

// Lease implements filter.HostLeaser.
func (d datagramHosts) Lease(cluster string, hash uint64, now filter.HostLease) (filter.HostLease, error) {
	cell := d.clusters.Find(cluster)
	if cell == nil {
		return nil, protocol.Faultf(protocol.NoCluster, "cluster %q", cluster)
	}
	var instead *upstream.HostLease
	way, has := now.(*datagramLease)
	if has {
		instead = way.HostLease
	}
	a, err := cell.Lease(hash, instead)
	if err != nil {
		return nil, err
	}
	h := a.Host()
	if has && way.Host() == h && !way.connRefused.Load() {
		a.Release()
		return now, nil
	}
	peer, err := dialDatagrams(h)
	if err != nil {
		a.Release()
		return nil, protocol.NewFault(protocol.ConnectFailure, err)
	}
	return &datagramLease{HostLease: a, peer: peer}, nil
}

// errUnixSocket reports a host with a unix socket, which cannot receive datagrams.
var errUnixSocket = errors.New("the host has no IP address")

func dialDatagrams(h *upstream.Host) (*network.ConnectedUDP, error) {
	if strings.HasPrefix(h.ResolvedAddress(), "/") || strings.HasPrefix(h.ResolvedAddress(), "@") {
		return nil, fmt.Errorf("%s: %w", h.Name(), errUnixSocket)
	}
	return dialer(h).DialPacket(h.ResolvedAddress())
}

// datagramLease implements filter.HostLease.
type datagramLease struct {
	*upstream.HostLease
	peer        *network.ConnectedUDP
	connRefused atomic.Bool // the host reported that no process receives there
}

// Report implements filter.HostLease.
func (w *datagramLease) Report(err error) {
	if err != nil {
		w.connRefused.Store(true)
	}
	w.HostLease.Report(err)
}

// Socket implements filter.HostLease.
func (w *datagramLease) Socket() *network.ConnectedUDP { return w.peer }

// Release implements filter.HostLease.
func (w *datagramLease) Release() {
	w.peer.Close()
	w.HostLease.Release()
}
