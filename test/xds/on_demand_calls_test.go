package xds

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dubbov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/dubbo_proxy/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// TestOnDemandConcurrentCalls verifies on-demand clusters when concurrent Dubbo calls on one
// connection, or TCP connections, are the first to use a cluster.
func TestOnDemandConcurrentCalls(t *testing.T) {
	t.Parallel()
	p, host := newControlPlane(t), newHost()
	provider := nullProvider(t)
	startWeft(t, strings.Replace(bootstrap("DELTA_GRPC", p.address, host+":9901"), "{", `{"xds_lazy": {},`, 1), nil)
	calls := &dubbov3.DubboProxy{}
	if err := prototext.Unmarshal([]byte(`stat_prefix: "calls" route_config: {name: "all" interface: "*" routes: {match: {} route: {cluster: "dubbo"}}}`), calls); err != nil {
		t.Fatal(err)
	}
	p.put(edsCluster("dubbo"), endpointsOf("dubbo", provider), edsCluster("tcp"), endpointsOf("tcp", provider),
		networkListener("calls", host+":20880", "envoy.filters.network.dubbo_proxy", calls),
		networkListener("bytes", host+":20881", "envoy.filters.network.tcp_proxy", &tcpv3.TcpProxy{
			StatPrefix: "bytes", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "tcp"},
		}))
	p.publish()
	for _, address := range []string{host + ":20880", host + ":20881"} {
		eventually(t, func() string {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				return err.Error()
			}
			_ = conn.Close()
			return ""
		})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := call(address, 32); err != nil {
					t.Errorf("calls to %s: %v", address, err)
				}
			})
		}
		wg.Wait()
	}
}

// networkListener returns a listener with a network filter.
func networkListener(name, address, filter string, m proto.Message) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, Address: socketAddress(address), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: filter, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: mustAny(m)}}},
	}}}
}

// Parts of Dubbo frames: a header of 16 bytes, followed by a Hessian body.
const (
	dubboHead     = 16
	dubboRequest  = "\xda\xbb\xc2\x00"
	dubboResponse = "\xda\xbb\x02\x14" // status 20, OK
	dubboNull     = "\x92"             // the response has a null value
)

// call sends n calls in one write on one connection and verifies their responses.
func call(address string, n int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // everything was read
	if err := conn.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		return err
	}
	var body, frames []byte
	for _, text := range []string{"2.0.2", "shop.Catalog", "0.0.0", "get", ""} {
		body = append(append(body, byte(len(text))), text...)
	}
	body = append(body, "HZ"...) // no attachments
	for id := range n {
		frames = append(frames, dubboRequest...)
		frames = binary.BigEndian.AppendUint64(frames, uint64(id)) //nolint:gosec // id is small
		frames = binary.BigEndian.AppendUint32(frames, uint32(len(body)))
		frames = append(frames, body...)
	}
	if _, err := conn.Write(frames); err != nil {
		return err
	}
	responses := bufio.NewReader(conn)
	seen := map[uint64]bool{}
	for range n {
		head, _, err := readFrame(responses)
		if err != nil {
			return err
		}
		if string(head[:4]) != dubboResponse {
			return fmt.Errorf("the response begins with % x, want % x", head[:4], dubboResponse)
		}
		seen[binary.BigEndian.Uint64(head[4:])] = true
	}
	if len(seen) != n {
		return fmt.Errorf("got responses for %d calls, want %d", len(seen), n)
	}
	return nil
}

// readFrame reads one frame.
func readFrame(r io.Reader) (head, body []byte, err error) {
	head = make([]byte, dubboHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[12:]))
	_, err = io.ReadFull(r, body)
	return head, body, err
}

// nullProvider starts a provider that responds to every call with a null value.
func nullProvider(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", newHost()+":20880")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // the listener was closed
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }() // the client detects errors
				for {
					head, _, err := readFrame(conn)
					if err != nil {
						return
					}
					response := append([]byte(dubboResponse), head[4:12]...)
					response = append(binary.BigEndian.AppendUint32(response, uint32(len(dubboNull))), dubboNull...)
					if _, err := conn.Write(response); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait() // Weft has exited, and its connections are closed
	})
	return ln.Addr().String()
}
