package main

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/weft-proxy/weft/test/bench/peer"
	"github.com/weft-proxy/weft/test/xds/control"
)

// xdsSuffix is the suffix of the name of a build of Weft that a control plane configures.
const xdsSuffix = "+xds"

// xdsRow compares the cost of a request when the configuration comes from a control plane with
// the cost when it comes from a file. The two are expected to be equal.
func xdsRow() row {
	return row{
		name: "xds-1k-64", title: "GET 1 KB, 64 connections, configured by a file and by a control plane",
		request: get(1 << 10), body: 1 << 10, connections: 64, comparesXDS: true,
	}
}

// controlPlanes starts control planes and stops them on close.
type controlPlanes struct {
	ctx    context.Context //nolint:containedctx // ends the control planes
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newControlPlanes() *controlPlanes {
	p := &controlPlanes{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// serve implements peer.ControlPlane.
func (p *controlPlanes) serve(file string) (netip.AddrPort, error) {
	ln, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	p.wg.Go(func() {
		// If Serve fails, Weft does not start, and that error is reported.
		_ = control.Serve(p.ctx, ln, file, slog.New(slog.DiscardHandler))
	})
	return netip.ParseAddrPort(ln.Addr().String())
}

func (p *controlPlanes) close() {
	p.cancel()
	p.wg.Wait()
}

// startFileAndXDS starts every build of Weft twice: configured by a file and by a control plane. On
// an error it also returns the subjects that run.
func (env *environment) startFileAndXDS(ctx context.Context, r row) ([]systemUnderTest, error) {
	var subjects []systemUnderTest
	for _, p := range env.programs {
		if !env.options.isWeft(p.Name) {
			continue
		}
		for _, program := range []peer.Program{p, peer.WeftXDS(p.Name+xdsSuffix, p.Path, env.controlPlanes.serve)} {
			running, err := env.start(ctx, program, r)
			if err != nil {
				return subjects, err
			}
			subjects = append(subjects, systemUnderTest{name: program.Name, address: running.Listen, pids: running.PIDs, running: running})
		}
	}
	return subjects, nil
}
