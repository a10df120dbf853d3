package udpproxy

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
)

// BenchmarkDatagrams sends datagrams of 100 bytes through the proxy to a socket that nothing reads.
// It measures the cost of one datagram toward a host: one system call to receive and one to send.
func BenchmarkDatagrams(b *testing.B) {
	sink, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	socket, err := network.ListenPacket(context.Background(), network.PacketOptions{Name: "l", Address: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	hosts := &fakeLeaser{hosts: []*fakeHost{{address: sink.LocalAddr().String(), sessionEnded: make(chan struct{}, 10)}}}
	counts := new(filter.DatagramCounters)
	p, err := New(Options{
		Config: config.UDPProxy{Cluster: "app", IdleTimeout: time.Minute, MaxSessions: 10},
		Socket: socket, Hosts: hosts, Counts: counts, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve() }()
	conn, err := net.DialUDP("udp", nil, socket.Addr().(*net.UDPAddr))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	content := make([]byte, 100)
	const maxAhead = 500 // datagrams in flight; they fit into the kernel's buffer
	b.ReportAllocs()
	b.ResetTimer()
	for i := range uint64(b.N) {
		if _, err := conn.Write(content); err != nil {
			b.Fatal(err)
		}
		for i > maxAhead && counts.In.Load()+counts.DroppedToHost.Load() < i-maxAhead {
			if counts.DroppedNoHost.Load() > 0 {
				b.Fatal("no host")
			}
		}
	}
	b.StopTimer()
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	p.Drain(expired)
	if err := <-served; err != nil {
		b.Error(err)
	}
}
