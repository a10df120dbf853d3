package main

import (
	"log/slog"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/network/udpproxy"
	"github.com/weft-proxy/weft/pkg/network"
)

func udpProxy(cfg config.UDPProxy, socket *network.PacketConn, hosts filter.HostLeaser, counts *filter.DatagramCounters, log *slog.Logger) (filter.PacketServer, error) {
	return udpproxy.New(udpproxy.Options{Config: cfg, Socket: socket, Hosts: hosts, Counts: counts, Log: log})
}
