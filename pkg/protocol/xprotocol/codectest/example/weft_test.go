package example

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest"
	"github.com/weft-proxy/weft/pkg/proxy"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/stream/http1"
	"github.com/weft-proxy/weft/pkg/stream/xprotocol"
	"github.com/weft-proxy/weft/pkg/upstream"
	"github.com/weft-proxy/weft/pkg/upstream/balance"
)

// protocols returns HTTP/1.1 and Memo, as protocols in cmd/weft/registry.go returns the
// protocols of Weft.
func protocols(rpc *xprotocol.Engine) []stream.Protocol {
	return []stream.Protocol{
		http1.Protocol(),
		rpc.Protocol(Codec{}),
	}
}

// configuration returns a configuration with a listener that detects Memo and HTTP, and forwards
// Memo to host.
func configuration(host string) string {
	return `{
	  "servers": [{
	    "listeners": [{"name": "front", "address": "127.0.0.1:0", "filter_chains": [{"filters": [
	      {"type": "proxy", "config": {"downstream_protocol": "Http1,memo", "router_config_name": "table"}}
	    ]}]}],
	    "routers": [{"router_config_name": "table", "virtual_hosts": [{"name": "all", "domains": ["*"], "routers": [{
	      "match": {"headers": [{"name": "service", "value": "org.weft.Memo"}, {"name": "method", "value": "echo"}]},
	      "route": {"cluster_name": "memos", "request_headers_to_add": [{"header": {"key": "x-seen-by", "value": "weft"}}]}
	    }]}]}]
	  }],
	  "cluster_manager": {"clusters": [{"name": "memos", "lb_type": "LB_ROUNDROBIN", "hosts": [{"address": "` + host + `"}]}]}
	}`
}

// startWeft runs a configuration and returns the address of its listener.
func startWeft(t *testing.T, text string) (address string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	rpc := xprotocol.New(log)
	capabilities := configjson.Capabilities{
		NetworkFilters: []string{configjson.ProxyFilter},
		ClusterTypes:   []config.ClusterType{config.ClusterStatic},
		Policies:       []config.LBPolicy{config.RoundRobin},
	}
	observed := metrics.Options{Reasons: []string{protocol.ReasonNone.String()}}
	for _, p := range protocols(nil) {
		capabilities.Protocols = append(capabilities.Protocols, p.Name)
	}
	for r := range protocol.Reasons() {
		observed.Reasons = append(observed.Reasons, r.String())
	}
	for c := range network.CloseReasons() {
		observed.CloseReasons = append(observed.CloseReasons, c.String())
	}
	snapshot, diagnostics := configjson.Parse("memo.json", []byte(text), capabilities, configjson.Options{})
	if err := diagnostics.Err(); err != nil {
		t.Fatal(err)
	}
	registry := metrics.New(observed)
	server := proxy.NewServer(proxy.Options{
		Protocols: protocols(rpc),
		Upstream: upstream.Options{
			Policies: map[config.LBPolicy]balance.NewFunc{config.RoundRobin: balance.RoundRobin},
			Meter:    proxy.Meter{Registry: registry},
			Log:      log,
		},
		Logs:    logfile.NewSet(logfile.SetOptions{Log: log}),
		Metrics: registry,
		Log:     log,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		server.Drain(ctx)
		rpc.Close()
	})
	if err := server.Apply(context.Background(), config.FullDelta(snapshot)); err != nil {
		t.Fatal(err)
	}
	return server.Describe()[0].Address
}

// startHost starts an upstream that responds to every request with its fields and content.
func startHost(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(conn net.Conn) {
		defer conn.Close()
		for {
			b, err := readFrame(conn)
			if err != nil {
				return // the connection was closed
			}
			if b[2] == kindRequest {
				b[2] = kindResponse
				if _, err := conn.Write(b); err != nil {
					return
				}
			}
		}
	}
	var goroutines sync.WaitGroup
	goroutines.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // the listener was closed
			}
			goroutines.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		goroutines.Wait()
	})
	return ln.Addr().String()
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	f, err := Codec{}.ParseFrame(head[:])
	if err != nil {
		return nil, err
	}
	b := make([]byte, f.Size)
	copy(b, head[:])
	_, err = io.ReadFull(r, b[headSize:])
	return b, err
}

// TestMemoThroughWeft sends Memo through Weft: configuration, protocol detection, routes, header
// changes, many requests in flight on a connection, local replies and heartbeats.
func TestMemoThroughWeft(t *testing.T) {
	conn, err := net.Dial("tcp", startWeft(t, configuration(startHost(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var sent []byte
	send := func(id uint64, b []byte) {
		Codec{}.SetID(b, id)
		sent = append(sent, b...)
	}
	for id := range uint64(100) {
		send(id, frame(kindRequest, 0, 3000, fmt.Sprint("text ", id), "service", "org.weft.Memo", "method", "echo", "n", fmt.Sprint(id)))
	}
	send(100, frame(kindRequest, 0, 0, "", "service", "org.weft.Other", "method", "echo"))
	send(101, frame(kindOneWay, 0, 0, "", "service", "org.weft.Memo", "method", "echo"))
	send(102, frame(kindHeartbeat, 0, 0, ""))
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	responses := map[uint64]string{}
	for range 102 { // the one-way request gets no response
		b, err := readFrame(conn)
		if err != nil {
			t.Fatal(err)
		}
		head, err := Codec{}.ParseFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		responses[head.ID] = codectest.View(Codec{}, b) + string(b[max(headSize, head.Size-len("text 00")):])
	}
	for id := range uint64(100) {
		got := responses[id]
		for _, want := range []string{"status 200, code 0\n", fmt.Sprintf("  n: %d\n", id), "  x-seen-by: weft\n", fmt.Sprint("text ", id)} {
			if !strings.Contains(got, want) {
				t.Errorf("the response to request %d lacks %q: %q", id, want, got)
			}
		}
	}
	if noRoute := fmt.Sprint("status 500, code ", protocol.ReasonNoRoute.Spec().GRPC); !strings.Contains(responses[100], noRoute) {
		t.Errorf("response to a request without a route: %q, want %q", responses[100], noRoute)
	}
	if got := responses[102]; !strings.HasPrefix(got, "heartbeat ack 102 ") {
		t.Errorf("response to a heartbeat: %q, want a heartbeat ack with ID 102", got)
	}
}

// TestGarbageAfterFrameClosesConnection verifies that Weft closes a connection whose bytes are not
// Memo.
func TestGarbageAfterFrameClosesConnection(t *testing.T) {
	conn, err := net.Dial("tcp", startWeft(t, configuration(startHost(t))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append(frame(kindHeartbeat, 0, 0, ""), "not a frame"...)); err != nil {
		t.Fatal(err)
	}
	if b, err := readFrame(conn); err != nil || b[2] != kindHeartbeatAck {
		t.Errorf("response to a heartbeat: %q, %v; want a heartbeat ack", b, err)
	}
	if b, err := readFrame(conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after garbage: read %q, %v, want a closed connection", b, err)
	}
}
