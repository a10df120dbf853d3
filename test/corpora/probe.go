package corpora

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// maxProbes limits the requests to one configuration.
const maxProbes = 24

// probe is a request to a listener.
type probe struct {
	listener   int // index
	host, path string
	fields     map[string]string
	serverName string
	isTLS      bool
}

// probesOf returns requests for the listeners of a configuration: one for each route, and one for a
// path that probably no route has.
func probesOf(listeners []listener) (probes []probe) {
	for i, l := range listeners {
		base := probe{listener: i, host: "a.example", path: "/", fields: map[string]string{}}
		objects(l.resource, func(m object) {
			socket, ok := get(m, "transport_socket").(object)
			base.isTLS = base.isTLS || ok && strings.Contains(fmt.Sprint(socket), "DownstreamTlsContext")
			if names, ok := get(m, "server_names").([]any); ok && len(names) > 0 && base.serverName == "" {
				name, _ := names[0].(string)
				base.serverName = strings.Replace(name, "*", "www", 1)
			}
		})
		count := len(probes)
		objects(l.resource, func(m object) {
			hosts, _ := get(m, "virtual_hosts").([]any)
			for _, h := range hosts {
				if host, ok := h.(object); ok {
					probes = append(probes, hostProbes(base, host)...)
				}
			}
		})
		if len(probes) == count {
			probes = append(probes, base)
		}
	}
	if len(probes) > maxProbes {
		probes = probes[:maxProbes]
	}
	return probes
}

// hostProbes returns the requests for the routes of a virtual host.
func hostProbes(base probe, host object) (probes []probe) {
	if domains, ok := host["domains"].([]any); ok && len(domains) > 0 {
		if name, ok := domains[0].(string); ok && name != "*" {
			base.host = strings.Replace(name, "*", "www", 1)
		}
	}
	routes, _ := host["routes"].([]any)
	for _, r := range routes {
		route, _ := r.(object)
		match, _ := route["match"].(object)
		p := base
		p.fields = map[string]string{}
		for _, key := range []string{"path", "prefix", "path_separated_prefix"} {
			if path, ok := get(match, key).(string); ok {
				p.path = path
			}
		}
		headers, _ := match["headers"].([]any)
		for _, h := range headers {
			addField(p.fields, h)
		}
		if !slices.ContainsFunc(probes, func(other probe) bool { return other.path == p.path && len(p.fields) == 0 && len(other.fields) == 0 }) {
			probes = append(probes, p)
		}
	}
	base.path = "/no-such-path"
	return append(probes, base)
}

// addField adds the header that a condition requires.
func addField(fields map[string]string, condition any) {
	m, _ := condition.(object)
	name, _ := m["name"].(string)
	text, ok := get(m, "exact_match").(string)
	if match, isMatch := get(m, "string_match").(object); isMatch {
		for _, key := range []string{"exact", "prefix", "suffix", "contains"} {
			if value, found := match[key].(string); found {
				text, ok = value, true
			}
		}
	}
	if ok && !strings.HasPrefix(name, ":") {
		fields[name] = text
	}
}

// answer is what client and origin observed for a probe.
type answer struct {
	failure, body, location, request string
	status                           int
}

// String returns an answer as a line.
func (a answer) String() string {
	if a.failure != "" {
		return a.failure
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %q %s", a.status, a.location, a.body, a.request))
}

// send sends a probe to a proxy and returns the answer. Requests with the field X-Case reach the
// origin under this ID.
func send(ctx context.Context, p probe, port int, id string, origins *origin.Set) answer {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	scheme := "http"
	if p.isTLS {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+p.host, http.NoBody)
	if err != nil {
		return answer{failure: "no request"}
	}
	request.URL.Path, request.URL.RawQuery, _ = strings.Cut(p.path, "?")
	for name, value := range p.fields {
		request.Header.Set(name, value)
	}
	request.Header.Set(wire.CaseField, id)
	client := http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", port))
			},
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: p.serverName}, //nolint:gosec // the certificate is arbitrary
		},
	}
	response, err := client.Do(request)
	if err != nil {
		origins.Take(id)
		if errors.Is(err, context.DeadlineExceeded) {
			return answer{failure: "timeout"}
		}
		return answer{failure: "no response"}
	}
	defer func() { _ = response.Body.Close() }() // read below as far as needed
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	a := answer{status: response.StatusCode, location: response.Header.Get("Location")}
	var requests []string // sorted: mirrored requests have no order
	for _, record := range origins.Take(id) {
		host, _ := wire.Get(record.Fields, "host")
		authority, _ := wire.Get(record.Fields, ":authority")
		requests = append(requests, record.Line+" "+cmp.Or(host, authority))
	}
	slices.Sort(requests)
	a.request = strings.Join(requests, "; ")
	if a.request != "" { // else the body is a local reply, whose text differs by design
		a.body = string(body)
	}
	return a
}

// equals reports whether two answers are the same. If a host is not available, the status is 502 in
// Weft and 503 in Envoy by design.
func (a answer) equals(b answer) bool {
	for _, r := range []*answer{&a, &b} {
		if r.request == "" && r.status == http.StatusBadGateway {
			r.status = http.StatusServiceUnavailable
		}
	}
	return a == b
}
