package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// example is a file of configs/ that runs with its ports replaced by free ones.
type example struct {
	t    *testing.T
	text string
	port map[string]string // keys are the ports in the file, values the ports that replace them
}

// address returns the address that replaces 127.0.0.1:port of the file.
func (e *example) address(port string) string {
	e.t.Helper()
	free, ok := e.port[port]
	if !ok {
		e.t.Fatalf("the file has no port %s", port)
	}
	return "127.0.0.1:" + free
}

// portPattern matches the port numbers of a file.
var portPattern = regexp.MustCompile(`(?:127\.0\.0\.1:|example:|_port": "|"(?:api_)?port(?:_value)?": |port_value: )(\d+)\b`)

func loadExample(t *testing.T, name string) *example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "configs", name))
	if err != nil {
		t.Fatal(err)
	}
	e := &example{t: t, text: string(text), port: map[string]string{}}
	for _, found := range portPattern.FindAllStringSubmatch(e.text, -1) {
		if port := found[1]; e.port[port] == "" {
			_, e.port[port], _ = net.SplitHostPort(freeAddress())
			e.text = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(e.text, e.port[port])
		}
	}
	return e
}

// replace replaces old in the file. It fails the test if the file does not contain old.
func (e *example) replace(old, replacement string) {
	e.t.Helper()
	if !strings.Contains(e.text, old) {
		e.t.Fatalf("the file does not have %s", old)
	}
	e.text = strings.ReplaceAll(e.text, old, replacement)
}

func (e *example) run(name string, env ...string) *weft {
	e.t.Helper()
	w := launchWeft(e.t, launchOptions{args: []string{"start", "-c", writeFile(e.t, name, e.text)}, env: env})
	w.awaitReady()
	return w
}

// examples returns the test of each file in configs/.
func examples() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"adaptive.json":          adaptiveExample,
		"xds.json":               xdsExample,
		"balancing.json":         balancingExample,
		"access.json":            accessExample,
		"access_rpc.json":        accessRPCExample,
		"bolt_client.json":       boltPair,
		"bolt_server.json":       boltServerExample,
		"compression.json":       compressionExample,
		"istio.json":             istioExample,
		"dns.json":               dnsExample,
		"dubbo_client.json":      dubboPair,
		"dubbo_consumer.json":    sidecarPairExample,
		"dubbo_http_routes.json": dubboRoutesExample,
		"dubbo_provider.json":    providerExample,
		"dubbo_server.json":      dubboServerExample,
		"envoy_bootstrap.yaml":   envoyBootstrapExample,
		"ext_authz.json":         extAuthzExample,
		"filter_chains.json":     filterChainsExample,
		"filters.json":           filtersExample,
		"flow_control.json":      flowControlExample,
		"grpc.json":              grpcExample,
		"health.json":            healthExample,
		"hedging.json":           hedgingExample,
		"http1.json":             http1Example,
		"http2.json":             http2Example,
		"older_form.json":        olderFormExample,
		"older_form_rpc.json":    olderRPCExample,
		"jwt.json":               jwtExample,
		"mirror.json":            mirrorExample,
		"overload.json":          overloadExample,
		"proxy_protocol.json":    proxyProtocolExample,
		"quickstart.json":        quickstartExample,
		"retries.json":           retriesExample,
		"routing.yaml":           routingExample,
		"tcp_proxy.json":         tcpProxyExample,
		"transparent.json":       transparentExample,
		"tls.json":               tlsExample,
		"udp_proxy.json":         udpProxyExample,
		"mtls.json":              mtlsExample,
	}
}

func TestExamples(t *testing.T) {
	tests := examples()
	files, err := os.ReadDir(filepath.Join(root, "configs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".go" {
			continue
		}
		t.Run(f.Name(), func(t *testing.T) {
			t.Parallel()
			run, ok := tests[f.Name()]
			if !ok {
				t.Fatal("no test runs this file")
			}
			run(t)
		})
	}
}

func quickstartExample(t *testing.T) {
	e := loadExample(t, "quickstart.json")
	e.run("quickstart.json")
	const want = "Hello from the application, through two Wefts.\n"
	for _, port := range []string{"2045", "2046", "2047"} {
		if got := sendRequest(t, newClient(t), "GET", "http://"+e.address(port)+"/", ""); got.status != 200 || got.body != want {
			t.Errorf(":%s responds %d %q, want %q", port, got.status, got.body, want)
		}
	}
}

func http1Example(t *testing.T) {
	failing := make(chan struct{}, 1)
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-failing:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			describeRequest(w, r)
		}
	})
	e := loadExample(t, "http1.json")
	w := e.run("http1.json", "APP_ADDRESS="+app.address)
	c, url := newClient(t), "http://"+e.address("2145")

	got := sendRequest(t, c, "GET", url+"/a?b=c", "", "Host: shop.example", "X-Forwarded-For: 6.6.6.6", "Connection: x-hop", "X-Hop: 1")
	if got.status != 200 || !strings.HasPrefix(got.body, "GET /a?b=c shop.example\n") {
		t.Errorf("GET: %d\n%s", got.status, got.body)
	}
	if !strings.Contains(got.body, "X-Forwarded-For: 127.0.0.1\r\n") || !strings.Contains(got.body, "Via: 1.1 weft\r\n") || strings.Contains(got.body, "X-Hop") {
		t.Errorf("the upstream got\n%s\nwant Via, X-Forwarded-For of the client and no hop-by-hop headers", got.body)
	}
	if server := got.header.Get("X-Served-By"); server != app.address {
		t.Errorf("X-Served-By: %q, want %q", server, app.address)
	}
	failing <- struct{}{}
	if got := sendRequest(t, c, "GET", url+"/", ""); got.status != 200 {
		t.Errorf("one 503 before a success: %d, want a retry", got.status)
	}
	if got := sendRequest(t, c, "GET", url+"/", "", "X-Big: "+strings.Repeat("x", 17<<10)); got.status != 431 {
		t.Errorf("head of 17 KB: %d, want 431", got.status)
	}
	big := dialRaw(t, e.address("2145")).send("POST / HTTP/1.1\nHost: a\nContent-Length: 9437184\n\n")
	if got, _ := big.readResponse("POST"); got.StatusCode != 413 {
		t.Errorf("body of 9 MB: %d, want 413", got.StatusCode)
	}
	w.stdout.await(t, 0, " HTTP/1.1 200 ") // access log
	if got := sendRequest(t, c, "GET", "http://"+e.address("34903")+"/metrics", ""); !strings.Contains(got.body, `weft_listener_requests_total{listener="client"`) {
		t.Errorf("the metrics sink lacks the listener: %d, %d bytes", got.status, len(got.body))
	}
	if got := sendRequest(t, c, "GET", "http://"+e.address("34902")+"/ready", ""); got.status != 200 {
		t.Errorf("/ready: %d, want 200", got.status)
	}
}

func olderFormExample(t *testing.T) {
	e := loadExample(t, "older_form.json")
	app := startUpstreamAt(t, e.address("2346"), describeRequest)
	e.run("older_form.json")
	url := "http://" + e.address("2345") + "/x"
	if got := sendRequest(t, newClient(t), "GET", url, "", "service: shop"); got.status != 200 || !strings.HasPrefix(got.body, "GET /x ") {
		t.Errorf("request with the header service: %d %s; want 200, prefix \"GET /x \"", got.status, got.body)
	}
	if got := sendRequest(t, newClient(t), "GET", url, ""); got.status != 404 {
		t.Errorf("request without the header service: %d, want 404", got.status)
	}
	if app.requests.Load() != 1 {
		t.Errorf("the upstream got %d requests, want 1", app.requests.Load())
	}
}

func filtersExample(t *testing.T) {
	app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Internal", "secret")
		describeRequest(w, r)
	})
	e := loadExample(t, "filters.json")
	e.replace(`"hosts": [{"address": "`+e.address("2546")+`"}]`, `"hosts": [{"address": "`+app.address+`"}]`)
	e.run("filters.json")
	c, url := newClient(t), "http://"+e.address("2545")

	if got := sendRequest(t, c, "GET", url+"/slow", ""); got.status != 200 || got.took < 200*time.Millisecond {
		t.Errorf("/slow: %d after %v, want 200 after 200ms", got.status, got.took)
	}
	if got := sendRequest(t, c, "GET", url+"/broken", ""); got.status != 418 {
		t.Errorf("/broken: %d, want 418", got.status)
	}
	for _, c := range []struct {
		path string
		size int
		want int
	}{{"/small", 16, 200}, {"/small", 17, 413}, {"/", 64 << 10, 200}, {"/", 64<<10 + 1, 413}} {
		if got := sendRequest(t, newClient(t), "POST", url+c.path, strings.Repeat("x", c.size)); got.status != c.want {
			t.Errorf("POST %s of %d bytes: %d, want %d", c.path, c.size, got.status, c.want)
		}
	}
	got := sendRequest(t, c, "GET", url+"/", "")
	if !strings.Contains(got.body, "X-Caller: 127.0.0.1:") {
		t.Errorf("the upstream got no header X-Caller with the client address:\n%s", got.body)
	}
	if got.header.Get("X-Internal") != "" {
		t.Error("the response has the header X-Internal, want it removed")
	}
	if got := sendRequest(t, c, "GET", "http://"+e.address("2546")+"/", ""); got.body != "hello\n" {
		t.Errorf("the host of the example responds %q, want hello", got.body)
	}
}

func tcpProxyExample(t *testing.T) {
	e := loadExample(t, "tcp_proxy.json")
	startUpstreamAt(t, e.address("5433"), respondWith("primary 2")) // 5432 is down
	e.run("tcp_proxy.json")
	for range 10 { // either host may be the first choice
		if got := sendRequest(t, newClient(t), "GET", "http://"+e.address("2245")+"/", ""); got.body != "primary 2" {
			t.Fatalf("with one of two hosts down: %d %q, want \"primary 2\"", got.status, got.body)
		}
	}
	// Replace the source network of the file with one on loopback.
	e = loadExample(t, "tcp_proxy.json")
	startUpstreamAt(t, e.address("5434"), respondWith("replica"))
	e.replace("10.1.0.0/16", "127.1.0.0/16")
	e.run("tcp_proxy.json")
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, 2, 3)}}
	conn, err := from.Dial("tcp", e.address("2245"))
	if err != nil {
		t.Fatal(err)
	}
	if _, got := newRawConn(t, conn).send("GET / HTTP/1.1\nHost: a\n\n").readResponse("GET"); got != "replica" {
		t.Errorf("from 127.1.2.3: %q, want the replica", got)
	}
}

// routingCase is a request to routing.yaml with the response that it must get.
type routingCase struct {
	name   string
	method string
	path   string
	fields []string
	status int
	body   string // prefix
	header [2]string
}

func routingCases() []routingCase {
	shop := "Host: shop.example"
	return []routingCase{
		{"exact path", "GET", "/healthz", []string{shop}, 200, "ok\n", [2]string{}},
		{"suffix domain", "GET", "/healthz", []string{"Host: de.shop.example"}, 200, "ok\n", [2]string{}},
		{"redirect", "GET", "/old/thing", []string{shop}, 308, "", [2]string{"Location", "https://shop.example/new/"}},
		{"header and method", "GET", "/x", []string{shop, "X-Canary: true"}, 200, "canary GET /x shop.example\n", [2]string{}},
		{"regex rewrite", "GET", "/v2/items/17", []string{shop}, 200, "stable GET /item?id=17 shop.example\n", [2]string{}},
		{"prefix and host rewrite", "GET", "/api/users?q=1", []string{shop}, 200, "stable GET /users?q=1 api.internal\n", [2]string{"X-Route", "api"}},
		{"variable", "PUT", "/x", nil, 405, "read only\n", [2]string{}},
		{"other value of the variable", "POST", "/x", nil, 405, "read only\n", [2]string{}},
		{"cluster header", "GET", "/by-field/x", []string{"X-Cluster: canary"}, 200, "canary GET /by-field/x canary.internal\n", [2]string{}},
		{"unknown cluster", "GET", "/by-field/x", []string{"X-Cluster: none"}, 404, "", [2]string{}},
		{"host header", "GET", "/x", []string{"X-Host: other.example"}, 200, "stable GET /x other.example\n", [2]string{}},
		{"unchanged host", "GET", "/x", []string{"Host: any.example"}, 200, "stable GET /x any.example\n", [2]string{}},
	}
}

func routingExample(t *testing.T) {
	e := loadExample(t, "routing.yaml")
	for port, name := range map[string]string{"2446": "stable", "2447": "canary"} {
		app := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Internal", "secret")
			_, _ = io.WriteString(w, name+" ")
			describeRequest(w, r)
		})
		e.replace(`hosts: [{address: "`+e.address(port)+`"`, `hosts: [{address: "`+app.address+`"`)
	}
	w := e.run("routing.yaml")
	url := "http://" + e.address("2445")
	for _, c := range routingCases() {
		t.Run(c.name, func(t *testing.T) {
			got := sendRequest(t, newClient(t), c.method, url+c.path, "", c.fields...)
			if got.status != c.status || !strings.HasPrefix(got.body, c.body) {
				t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, got.status, got.body, c.status, c.body)
			}
			if name, want := c.header[0], c.header[1]; name != "" && got.header.Get(name) != want {
				t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
			}
			if got.header.Get("X-Internal") != "" {
				t.Error("the response has the header X-Internal, want response_headers_to_remove of the table to remove it")
			}
		})
	}
	t.Run("weights", func(t *testing.T) { routingSplits(t, url) })
	t.Run("upstream listeners", func(t *testing.T) {
		for port, want := range map[string]string{"2446": "stable\n", "2447": "canary\n"} {
			if got := sendRequest(t, newClient(t), "GET", "http://"+e.address(port), ""); got.body != want {
				t.Errorf(":%s responds %q, want %q", port, got.body, want)
			}
		}
	})
	t.Run("access log", func(t *testing.T) {
		line := w.stdout.await(t, 0, `"/v2/items/17"`)
		want := regexp.MustCompile(`^\{"time":"[^"]+","status":200,"route":"versions","path":"/v2/items/17"\}$`)
		if !want.MatchString(line) {
			t.Errorf("line %s, want %s", line, want)
		}
	})
}

// routingSplits sends 400 requests to a split of 90:10. The canary gets 40 on average. 4 and 100
// are at least six standard deviations away.
func routingSplits(t *testing.T, url string) {
	c := newClient(t)
	seen := map[string]int{}
	for range 400 {
		text, _, _ := strings.Cut(sendRequest(t, c, "GET", url+"/", "", "Host: shop.example").body, " ")
		seen[text]++
	}
	if n := seen["canary"]; n < 4 || n > 100 || seen["stable"] != 400-n {
		t.Errorf("400 requests went to %v, want about 360:40", seen)
	}
}

// TestHeadersKeepOrderAndCase verifies that the request target and the headers of both messages
// pass unchanged, in order and case.
func TestHeadersKeepOrderAndCase(t *testing.T) {
	t.Parallel()
	lines := make(chan []string, 1)
	app := startTCPServer(t, func(c net.Conn) {
		var got []string
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			got = append(got, strings.TrimRight(line, "\r\n"))
		}
		lines <- got
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nb-SECOND: 1\r\nA-first: 2\r\n\r\n")
	})
	s, front := simpleProxy(app)
	startWeft(t, s.config())
	client := dialRaw(t, front).send("GET /%7Euser/a%2fb?q=%41 HTTP/1.1\nHost: Shop.Example\nzebra: 1\nApple: 2\nzebra: 3\n\n")
	want := []string{"GET /%7Euser/a%2fb?q=%41 HTTP/1.1", "Host: Shop.Example", "zebra: 1", "Apple: 2", "zebra: 3"}
	if got := <-lines; !slices.Equal(got, want) {
		t.Errorf("the upstream got %q, want %q", got, want)
	}
	head := make([]byte, len("HTTP/1.1 204 No Content\r\nb-SECOND: 1\r\nA-first: 2\r\n"))
	if _, err := io.ReadFull(client.r, head); err != nil || !strings.HasSuffix(string(head), "b-SECOND: 1\r\nA-first: 2\r\n") {
		t.Errorf("the client got %q, %v; want the headers in order and case", head, err)
	}
}
