package xds

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/xds/resource"
	"github.com/weft-proxy/weft/test/netns"
)

// capture is the directory of responses that a real istiod sent to a sidecar; the tests of
// pkg/xds/resource own it.
const capture = root + "/pkg/xds/resource/testdata/istiod"

// pod is a network namespace with a sidecar, to which packet filters redirect connections as in
// Istio, and a network namespace with a client:
//
//	client ──── sidecar (weft, its upstream servers, and its own application)
type pod struct {
	t                   *testing.T
	clientNS, sidecarNS *netns.Namespace
	address             netip.Addr // of the sidecar
	ca                  *meshCA
}

func newPod(t *testing.T) *pod {
	t.Helper()
	n := netns.New(t)
	p := &pod{t: t, clientNS: n.Namespace("client"), sidecarNS: n.Namespace("sidecar"), ca: newMeshCA(t)}
	link := n.Connect(p.clientNS, p.sidecarNS)
	link.Route(p.clientNS, "0.0.0.0/0")
	p.address = link.B.IPv4
	p.sidecarNS.Run("ip", "addr", "add", externalAddress+"/32", "dev", "lo")
	for _, destination := range []string{"240.240.0.0/16", externalAddress} {
		p.sidecarNS.IPtables("-t nat -A PREROUTING -p tcp -d " + destination + " -j REDIRECT --to-ports 15001")
	}
	p.sidecarNS.IPtables(fmt.Sprintf("-t nat -A PREROUTING -p tcp -d %s --dport 18301:18307 -j REDIRECT --to-ports 15006", p.address))

	for _, origin := range []struct{ address, name string }{
		{"127.0.0.1:18101", "reviews v1"}, {"127.0.0.1:18102", "reviews v2"},
		{"127.0.0.1:18111", "reviews v1, 9090"}, {"127.0.0.1:18112", "reviews v2, 9090"},
		{"127.0.0.1:18201", "ratings"}, {"127.0.0.1:18080", "external"},
		{p.address.String() + ":18301", "app"},
	} {
		serveAs(t, p.listen(origin.address), origin.name)
	}
	serveAs(t, tls.NewListener(p.listen("127.0.0.1:18103"), p.ca.server("reviews")), "reviews v3")
	serveAs(t, tls.NewListener(p.listen("127.0.0.10:18301"), p.ca.server("app")), "app by TLS")
	echo(t, tls.NewListener(p.listen("127.0.0.10:18307"), p.ca.server("app")))
	echo(t, p.listen(p.address.String()+":18307"))
	echo(t, p.listen(externalAddress+":1234"))
	return p
}

// externalAddress is an address that the mesh does not define.
const externalAddress = "10.99.0.5"

func (p *pod) listen(address string) net.Listener {
	p.t.Helper()
	ln, err := p.sidecarNS.Listen("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	return ln
}

// echo returns the first 4 bytes of each connection.
func echo(t *testing.T, ln net.Listener) {
	t.Cleanup(func() { _ = ln.Close() })
	go func() { // ends with ln
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection, which has a deadline
				defer func() { _ = c.Close() }()
				_ = c.SetDeadline(time.Now().Add(waitTimeout))
				b := make([]byte, 4)
				if _, err := io.ReadFull(c, b); err == nil {
					_, _ = c.Write(b) // the client detects a missing response
				}
			}()
		}
	}()
}

// TestIstiod verifies that a sidecar accepts all resources that a real istiod sent, and routes
// requests accordingly.
func TestIstiod(t *testing.T) {
	for _, apiType := range apiTypes() {
		t.Run(apiType, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			r := newReplayServer(t, capture)
			for _, s := range p.ca.secrets("app") {
				r.add(resource.SecretType, mustAny(s))
			}
			r.serve(p.listen("127.0.0.1:18000"))
			startWeft(t, bootstrap(apiType, "127.0.0.1:18000", "127.0.0.1:9901"), p.sidecarNS.Command)
			types := []string{"Cluster", "ClusterLoadAssignment", "Listener", "RouteConfiguration", "Secret"}
			eventually(t, func() string {
				if got, nacks := r.outcomes(); !slices.Equal(got, types) && len(nacks) == 0 {
					return fmt.Sprintf("accepted types: only %v", got)
				}
				return ""
			})
			if _, nacks := r.outcomes(); len(nacks) > 0 {
				t.Errorf("rejected: %v, want none", nacks)
			}
			p.checkOutbound()
			p.checkInbound()
		})
	}
}

// request is an HTTP request and its expected response: the body, preceded by the status unless it
// is 200.
type request struct {
	to, method, path, host string
	header                 string // "name: value"
	want                   string
}

// checkOutbound verifies requests that leave through the sidecar.
func (p *pod) checkOutbound() {
	const (
		reviews     = "240.240.0.10:9080"
		reviews9090 = "240.240.0.10:9090"
	)
	c := p.client(nil)
	for _, r := range []request{
		{reviews, "GET", "/", "reviews:9080", "", "reviews v1"},
		{reviews, "GET", "/", "reviews.default.svc.cluster.local", "", "reviews v1"},
		{reviews, "GET", "/api/x", "reviews:9080", "end-user: jason", "reviews v3"}, // over mutual TLS
		{reviews, "GET", "/api/x", "reviews:9080", "end-user: other", "reviews v1"},
		{reviews, "GET", "/?v=12", "reviews:9080", "", "reviews v3"},
		{reviews, "GET", "/?v=x", "reviews:9080", "", "reviews v1"},
		{reviews, "GET", "/health", "reviews:9080", "", "ok"},
		{reviews, "GET", "/old/x", "reviews:9080", "", "308 "},
		{reviews, "GET", "/", "ratings:9080", "", "ratings"},
		{reviews, "GET", "/", "nobody.test", "", "502 "},
		{reviews9090, "GET", "/", "reviews:9090", "", "reviews v1, 9090"},
		{"240.240.0.13:80", "GET", "/", "external.example.test", "", "external"},
		{"240.240.0.12:8080", "GET", "/", "app:8080", "", "app by TLS"},
	} {
		p.checkEventually(c, r)
	}
	counts := map[string]int{}
	const n = 200
	for range n {
		text, err := p.send(c, request{to: reviews, method: "GET", path: "/w/x", host: "reviews:9080"})
		if err != nil {
			text = err.Error()
		}
		counts[text]++
	}
	if v2 := counts["reviews v2"]; v2 < n/10 || v2 > n*3/10 || counts["reviews v1"] != n-v2 {
		p.t.Errorf("%d requests of a route with weights 80 and 20 went to %v, want %d to %d to v2, the rest to v1", n, counts, n/10, n*3/10)
	}
	p.checkEcho("240.240.0.12:7070", nil, true)      // over mutual TLS
	p.checkEcho(externalAddress+":1234", nil, false) // the mesh allows no connections to other addresses
}

// checkInbound verifies requests to the application behind the sidecar. A policy allows only an
// administrator to change paths below /admin and to send bytes over TCP.
func (p *pod) checkInbound() {
	app := p.address.String() + ":18301"
	plain, admin, other := p.client(nil), p.client(p.ca.client("admin")), p.client(p.ca.client("other"))
	const forbidden = "403 "
	p.checkEventually(plain, request{app, "GET", "/", "app", "", "app"})
	p.checkEventually(plain, request{app, "POST", "/admin/x", "app", "", forbidden})
	p.checkEventually(other, request{app, "GET", "/", "app", "", "app"})
	p.checkEventually(other, request{app, "POST", "/admin/x", "app", "", forbidden})
	p.checkEventually(admin, request{app, "POST", "/admin/x", "app", "", "app"})
	p.checkEventually(plain, request{app, "GET", "/", "app", "authorization: Bearer nonsense", "401 "})
	echoAddress := p.address.String() + ":18307"
	p.checkEcho(echoAddress, nil, false)
	p.checkEcho(echoAddress, p.ca.client("other"), false)
	p.checkEcho(echoAddress, p.ca.client("admin"), true)
}

// client returns an HTTP client, over TLS if identity is not nil.
func (p *pod) client(identity *tls.Config) *http.Client {
	transport := &http.Transport{DialContext: p.clientNS.DialContext, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := p.clientNS.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return tls.Client(c, identity), nil // uses HTTP/1.1 regardless of the negotiated protocol
	}}
	if identity != nil {
		transport.TLSClientConfig = identity // tells send to use https
	}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: waitTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (p *pod) send(c *http.Client, r request) (string, error) {
	scheme := "http"
	if c.Transport.(*http.Transport).TLSClientConfig != nil {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(p.t.Context(), r.method, scheme+"://"+r.to+r.path, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host = r.host
	if name, value, ok := strings.Cut(r.header, ": "); ok {
		req.Header.Set(name, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read to the end
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", resp.StatusCode, body), err
	}
	return string(body), err
}

// checkEventually repeats a request until it gets the expected response, because Weft may not have
// applied all resources yet. An expected status without a body matches any response with that
// status.
func (p *pod) checkEventually(c *http.Client, r request) {
	p.t.Helper()
	timeout := time.After(waitTimeout)
	for {
		got, err := p.send(c, r)
		if err == nil && (got == r.want || strings.HasSuffix(r.want, " ") && strings.HasPrefix(got, r.want)) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-timeout:
			p.t.Errorf("%s %s of %s at %s, %q: %q, %v, want %q", r.method, r.path, r.host, r.to, r.header, got, err, r.want)
			return
		}
	}
}

// checkEcho verifies that an address returns the bytes sent to it, or that it does not if want is
// false.
func (p *pod) checkEcho(address string, identity *tls.Config, want bool) {
	p.t.Helper()
	c, err := p.clientNS.Dial("tcp", address)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if identity != nil {
		c = tls.Client(c, identity)
	}
	back := make([]byte, 4)
	_, err = io.WriteString(c, "ping")
	if err == nil {
		_, err = io.ReadFull(c, back)
	}
	if got := err == nil && string(back) == "ping"; got != want {
		p.t.Errorf("%s echoed %q, %v; want an echo: %v", address, back, err, want)
	}
}
