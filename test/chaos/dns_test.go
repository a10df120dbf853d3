package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestDNSChanges verifies that no request fails while the responses of the DNS server for the
// hosts of clusters change: other addresses, no addresses, NXDOMAIN, SERVFAIL, no response. With
// STRICT_DNS each address is a host. With LOGICAL_DNS new connections go to the first address.
//
// Weft uses responses with addresses and ignores all other responses.
func TestDNSChanges(t *testing.T) {
	r := newTestRun(t)
	var ips []string // a host listens on the same port of each
	posts := new(opCounts)
	for i := range 4 {
		ips = append(ips, fmt.Sprintf("127.0.0.%d", i+1))
	}
	webListeners, webPort := r.listenOnAll(ips)
	rpcListeners, rpcPort := r.listenOnAll(ips)
	for i, ip := range ips {
		r.Cleanup(newHost(ip, webListeners[i], rpcListeners[i], posts).close)
	}
	server := r.newDNSServer(ips)
	dnsCluster := func(name, discovery, port string) object {
		return cluster(name, []string{"hosts.chaos.test:" + port}, object{"type": discovery,
			"dns_refresh_rate": "200ms", "dns_failure_refresh_rate": object{"base_interval": "100ms", "max_interval": "400ms"},
			"dns_resolvers": list{server.address}, "dns_lookup_family": "V4_ONLY"})
	}
	webAddr, rpcAddr := freeAddress(), freeAddress()
	w := r.newWeft(setup{
		listeners: list{listener("web", webAddr, "Auto"), listener("dubbo", rpcAddr, "dubbo")},
		tables:    list{routeTable("web", route("/logical", "logical"), route("/", "page")), routeTable("dubbo", route("/", "rpc"))},
		clusters: list{
			dnsCluster("page", "STRICT_DNS", webPort), dnsCluster("rpc", "STRICT_DNS", rpcPort),
			// HTTP/1.1 connections are short-lived, so Weft soon connects to new addresses.
			dnsCluster("logical", "LOGICAL_DNS", webPort).with(object{"max_request_per_conn": 10}),
		},
	}, nil, nil)
	http1, http2, rpc := r.newHTTPClient(webAddr, false, plainDial), r.newHTTPClient(webAddr, true, plainDial), r.newDubboClient(rpcAddr, plainDial)
	loads := []load{
		http1.getLoad("http1", "/echo", 100), http1.postLoad("http1-post", "/echo", 50), http2.getLoad("http2", "/echo", 100), rpc.callLoad("dubbo", 100),
		http2.getLoad("http2-slow", "/echo?wait=1500", 10), http1.getLoad("logical-http1", "/logical", 60), http2.getLoad("logical-http2", "/logical", 60),
	}
	closeConns := func() {
		http1.transport.CloseIdleConnections()
		http2.transport.CloseIdleConnections()
		rpc.close()
	}
	w.warmUp(closeConns, loads...)

	end := r.runInBackground(func(stop <-chan struct{}) { server.change(stop, r.newRand(1)) })
	results := r.runLoads(loads...)
	end()
	r.Logf("%d queries; responses: %v", server.queries.Load(), server.responses)

	for _, name := range []string{"http1", "http1-post", "http2", "dubbo", "logical-http1", "logical-http2"} {
		r.check(results[name], bounds{p50: 20 * time.Millisecond, p99: 250 * time.Millisecond})
	}
	r.check(results["http2-slow"], bounds{p99: slowCall + 250*time.Millisecond})
	for _, ip := range ips {
		if got := results["http1"].fraction(ip); got < 0.02 {
			r.Errorf("%s got %.1f %% of the requests, want at least 2 %%", ip, 100*got)
		}
	}
	if got := len(results["logical-http1"].byHost); got < 2 {
		r.Errorf("requests to the LOGICAL_DNS cluster went to %d hosts, want at least 2", got)
	}
	if n := server.queries.Load(); float64(n) < r.duration.Seconds() {
		r.Errorf("the DNS server got only %d queries, want at least one per second", n)
	}
	posts.checkOnce(r)
	closeConns()
	w.checkNoLeak()
}

// listenOnAll listens on the same port of all addresses.
func (r *testRun) listenOnAll(ips []string) (listeners []net.Listener, port string) {
	r.Helper()
	for range 100 {
		_, port, _ = net.SplitHostPort(freeAddress())
		for _, ip := range ips {
			l, err := net.Listen("tcp", net.JoinHostPort(ip, port))
			if err != nil {
				break // the port is in use on this address
			}
			listeners = append(listeners, l)
		}
		if len(listeners) == len(ips) {
			return listeners, port
		}
		for _, l := range listeners {
			_ = l.Close() // nothing was accepted
		}
		listeners = nil
	}
	r.Fatal("no port is free on all addresses")
	return nil, ""
}

// dnsResponse is the kind of response of the DNS server.
type dnsResponse string

// Kinds of responses of the DNS server.
const (
	dnsAddresses   dnsResponse = "addresses"
	dnsNoAddresses dnsResponse = "no address"
	dnsNXDomain    dnsResponse = "no such name"
	dnsServFail    dnsResponse = "server failure"
	dnsNoResponse  dnsResponse = "no response"
)

// dnsServer is a DNS server over UDP.
type dnsServer struct {
	address   string
	ips       []string
	queries   atomic.Int64
	responses map[dnsResponse]int // owned by the method change until it returns

	mu         sync.Mutex // guards the following fields
	response   dnsResponse
	currentIPs []string
}

// newDNSServer starts a DNS server that initially returns all of the addresses.
func (r *testRun) newDNSServer(ips []string) *dnsServer {
	r.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	s := &dnsServer{address: conn.LocalAddr().String(), ips: ips, response: dnsAddresses, currentIPs: ips, responses: map[dnsResponse]int{}}
	server := &dns.Server{PacketConn: conn, Handler: s}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ActivateAndServe() // until the connection is closed
	}()
	r.Cleanup(func() {
		_ = conn.Close() // ends ActivateAndServe
		<-ended
	})
	return s
}

// change selects another random response every 400 ms. Every third response has no addresses.
func (s *dnsServer) change(stop <-chan struct{}, rng *rand.Rand) {
	for n := 0; sleep(stop, 400*time.Millisecond); n++ {
		next := dnsAddresses
		if n%3 == 2 {
			next = []dnsResponse{dnsNoAddresses, dnsNXDomain, dnsServFail, dnsNoResponse}[rng.IntN(4)]
		}
		current := make([]string, 0, len(s.ips))
		for _, i := range rng.Perm(len(s.ips))[:1+rng.IntN(len(s.ips))] {
			current = append(current, s.ips[i])
		}
		s.responses[next]++
		s.mu.Lock()
		s.response, s.currentIPs = next, current
		s.mu.Unlock()
	}
}

// ServeDNS sends the current kind of response.
func (s *dnsServer) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	s.queries.Add(1)
	s.mu.Lock()
	response, current := s.response, s.currentIPs
	s.mu.Unlock()
	resp := new(dns.Msg)
	resp.SetReply(query)
	switch response {
	case dnsNoResponse:
		return
	case dnsServFail:
		resp.Rcode = dns.RcodeServerFailure
	case dnsNXDomain:
		resp.Rcode = dns.RcodeNameError
	case dnsAddresses:
		for _, q := range query.Question {
			for _, ip := range current {
				if q.Qtype == dns.TypeA {
					resp.Answer = append(resp.Answer, &dns.A{
						Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(ip).To4(),
					})
				}
			}
		}
	default: // a response without addresses
	}
	_ = w.WriteMsg(resp) // the client may have given up
}
