package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// startOnAddresses starts a server on one port of each address of ips. It responds with its address
// and the remote address of the connection.
func startOnAddresses(t *testing.T, ips ...string) (port string) {
	t.Helper()
	_, port, _ = net.SplitHostPort(freeAddress())
	for _, ip := range ips {
		startUpstreamAt(t, net.JoinHostPort(ip, port), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, ip+" "+r.RemoteAddr)
		})
	}
	return port
}

// clusterStatus is what /clusters reports about the names and hosts of a cluster.
type clusterStatus struct {
	Names []struct {
		Name      string   `json:"name"`
		Addresses []string `json:"addresses"`
		Age       float64  `json:"age_seconds"`
		Failures  int      `json:"lookup_failures_total"`
		Error     string   `json:"error"`
	} `json:"names"`
	Hosts []struct {
		Address string `json:"address"`
		Target  string `json:"target"`
	} `json:"hosts"`
}

func (w *weft) clusterStatus(cluster string) clusterStatus {
	w.t.Helper()
	var status clusterStatus
	if err := json.Unmarshal([]byte(w.adminGet("/clusters?name="+cluster)), &status); err != nil {
		w.t.Fatal(err)
	}
	return status
}

// TestLogicalDNSAddressChange verifies that no request fails while the address of a LOGICAL_DNS
// host changes under load, and that new connections go to the newest address.
func TestLogicalDNSAddressChange(t *testing.T) {
	t.Parallel()
	port := startOnAddresses(t, "127.0.0.2", "127.0.0.3")
	server := startDNSServer(t, "127.0.0.2", "127.0.0.3")
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", object{"timeout": "5s"}))},
		clusters: list{cluster("app", object{
			"type": "LOGICAL_DNS", "dns_refresh_rate": "20ms", "dns_resolvers": list{server.address}, "max_request_per_conn": 50,
		}, "app.example:"+port)},
	}.config())
	var failed, served atomic.Int64
	var mu sync.Mutex
	seen := map[string]string{} // upstream connection to the address of its server
	stop := make(chan struct{})
	var clients sync.WaitGroup
	c := newClient(t)
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := tryRequest(t.Context(), c, "GET", "http://"+front, "")
				ip, connection, ok := strings.Cut(got.body, " ")
				if err != nil || got.status != 200 || !ok {
					failed.Add(1)
					continue
				}
				served.Add(1)
				mu.Lock()
				seen[connection] = ip
				mu.Unlock()
			}
		})
	}
	for i := range 10 {
		current := []string{"127.0.0.3", "127.0.0.2"}
		if i%2 == 1 {
			slices.Reverse(current)
		}
		if i == 9 {
			current = current[:1]
		}
		server.set(dns.RcodeSuccess, current...)
		eventually(t, "the target is "+current[0], func() bool {
			n := w.clusterStatus("app")
			if len(n.Hosts) != 1 || n.Hosts[0].Address != "app.example:"+port || n.Hosts[0].Target != net.JoinHostPort(current[0], port) {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			before := len(seen)
			clear(seen)
			return before > 0
		})
		eventually(t, "the cluster connects to "+current[0], func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, ip := range seen {
				if ip == current[0] {
					return true
				}
			}
			return false
		})
	}
	server.set(dns.RcodeNameError)
	eventually(t, "lookups fail", func() bool { n := w.clusterStatus("app"); return n.Names[0].Failures > 0 })
	before := served.Load()
	eventually(t, "requests continue", func() bool { return served.Load() > before+50 })
	close(stop)
	clients.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of %d requests failed, want 0", n, n+served.Load())
	}
	n := w.clusterStatus("app").Names[0]
	if n.Name != "app.example" || !slices.Equal(n.Addresses, []string{"127.0.0.2"}) || n.Age <= 0 || n.Error == "" {
		t.Errorf("/clusters reports %+v, want app.example at 127.0.0.2 with an age and an error", n)
	}
	if got := w.metric("weft_dns_lookups_total", `result="no_name"`); got < 1 {
		t.Errorf("weft_dns_lookups_total{result=\"no_name\"} = %v, want at least 1", got)
	}
}

// TestLogicalDNSKeepsConnections verifies that an open connection stays in use after its host
// has a new address.
func TestLogicalDNSKeepsConnections(t *testing.T) {
	t.Parallel()
	port := startOnAddresses(t, "127.0.0.2", "127.0.0.3")
	server := startDNSServer(t, "127.0.0.2")
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app"))},
		clusters: list{cluster("app", object{
			"type": "LOGICAL_DNS", "dns_refresh_rate": "20ms", "dns_resolvers": list{server.address},
		}, "app.example:"+port)},
	}.config())
	c := newClient(t)
	first := sendRequest(t, c, "GET", "http://"+front, "")
	server.set(dns.RcodeSuccess, "127.0.0.3")
	eventually(t, "the new address is resolved", func() bool { return w.clusterStatus("app").Hosts[0].Target == "127.0.0.3:"+port })
	for range 5 {
		if got := sendRequest(t, c, "GET", "http://"+front, ""); got.body != first.body {
			t.Errorf("the open connection changed from %q to %q", first.body, got.body)
		}
	}
}

// TestStrictDNSChangesUnderLoad verifies that no request fails while the hosts of a STRICT_DNS
// cluster change under load.
func TestStrictDNSChangesUnderLoad(t *testing.T) {
	t.Parallel()
	ips := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}
	port := startOnAddresses(t, ips...)
	server := startDNSServer(t, ips...)
	front := freeAddress()
	w := startWeft(t, setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app", object{"timeout": "5s"}))},
		clusters: list{cluster("app", object{
			"type": "STRICT_DNS", "dns_refresh_rate": "10ms", "dns_resolvers": list{server.address}, "lb_type": "LB_ROUNDROBIN",
		}, "app.example:"+port)},
	}.config())
	var failed, served atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	c := newClient(t)
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				got, err := tryRequest(t.Context(), c, "GET", "http://"+front, "")
				if err != nil || got.status != 200 {
					failed.Add(1)
					continue
				}
				served.Add(1)
			}
		})
	}
	for i := range 30 {
		records := slices.Concat(ips[i%3:], ips[:i%3])[:1+i%3]
		server.set(dns.RcodeSuccess, records...)
		requests, before := server.queries.Load(), served.Load()
		eventually(t, "the lookup result is applied", func() bool { return server.queries.Load() > requests+3 && served.Load() > before+20 })
	}
	stop()
	clients.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of %d requests failed, want 0", n, n+served.Load())
	}
	if n := w.metric("weft_dns_lookups_total", `result="ok"`); n < 30 {
		t.Errorf("%v lookups, want at least 30", n)
	}
}

// dnsExample runs dns.json. One of its clusters has a host for each address of the name. The other
// has one host with the first address.
func dnsExample(t *testing.T) {
	port := startOnAddresses(t, "127.0.0.2", "127.0.0.3")
	server := startDNSServer(t, "127.0.0.2", "127.0.0.3")
	e := loadExample(t, "dns.json")
	w := e.run("dns.json", "NAME_SERVER="+server.address, "APP_PORT="+port)
	w.admin = e.address("34931")
	c, url := newClient(t), "http://"+e.address("3245")
	from := func(path string) string {
		seen := map[string]bool{}
		for range 8 {
			ip, _, _ := strings.Cut(sendRequest(t, c, "GET", url+path, "").body, " ")
			seen[ip] = true
		}
		sortedIPs := make([]string, 0, len(seen))
		for ip := range seen {
			sortedIPs = append(sortedIPs, ip)
		}
		slices.Sort(sortedIPs)
		return strings.Join(sortedIPs, " ")
	}
	if got := from("/each"); got != "127.0.0.2 127.0.0.3" {
		t.Errorf("cluster with a host for each address: %q, want \"127.0.0.2 127.0.0.3\"", got)
	}
	if got := from("/"); got != "127.0.0.2" {
		t.Errorf("cluster with one host: %q, want \"127.0.0.2\"", got)
	}
	if got := w.clusterStatus("each-address").Names[0].Name; got != "shop" {
		t.Errorf("/clusters names %q, want \"shop\"", got)
	}
}
