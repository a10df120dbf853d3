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

// addressed starts a server on one port of each address of ips. It responds with its address and
// the remote address of the connection.
func addressed(t *testing.T, ips ...string) (port string) {
	t.Helper()
	_, port, _ = net.SplitHostPort(free())
	for _, ip := range ips {
		serveAt(t, net.JoinHostPort(ip, port), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, ip+" "+r.RemoteAddr)
		})
	}
	return port
}

// named is what /clusters reports about the names and hosts of a cluster.
type named struct {
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

func (w *weft) named(cluster string) named {
	w.t.Helper()
	var n named
	if err := json.Unmarshal([]byte(w.get("/clusters?name="+cluster)), &n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestALogicalHostThatMoves verifies that no request fails while the address of a LOGICAL_DNS host
// changes under load, and that new connections go to the newest address.
func TestALogicalHostThatMoves(t *testing.T) {
	t.Parallel()
	port := addressed(t, "127.0.0.2", "127.0.0.3")
	server := nameServer(t, "127.0.0.2", "127.0.0.3")
	front := free()
	w := run(t, setup{
		listeners: list{listen("front", front)},
		tables:    list{table("front", to("/", "app", object{"timeout": "5s"}))},
		clusters: list{cluster("app", object{
			"type": "LOGICAL_DNS", "dns_refresh_rate": "20ms", "dns_resolvers": list{server.address}, "max_request_per_conn": 50,
		}, "app.example:"+port)},
	}.config())
	var failed, served atomic.Int64
	var mu sync.Mutex
	seen := map[string]string{} // upstream connection to the address of its server
	stop := make(chan struct{})
	var callers sync.WaitGroup
	c := client(t)
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := try(t.Context(), c, "GET", "http://"+front, "")
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
		now := []string{"127.0.0.3", "127.0.0.2"}
		if i%2 == 1 {
			slices.Reverse(now)
		}
		if i == 9 {
			now = now[:1]
		}
		server.set(dns.RcodeSuccess, now...)
		eventually(t, "connections lead to "+now[0], func() bool {
			n := w.named("app")
			if len(n.Hosts) != 1 || n.Hosts[0].Address != "app.example:"+port || n.Hosts[0].Target != net.JoinHostPort(now[0], port) {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			before := len(seen)
			clear(seen)
			return before > 0
		})
		eventually(t, "a connection to "+now[0], func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, ip := range seen {
				if ip == now[0] {
					return true
				}
			}
			return false
		})
	}
	server.set(dns.RcodeNameError)
	eventually(t, "lookups fail", func() bool { n := w.named("app"); return n.Names[0].Failures > 0 })
	before := served.Load()
	eventually(t, "requests go on", func() bool { return served.Load() > before+50 })
	close(stop)
	callers.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of %d requests failed", n, n+served.Load())
	}
	n := w.named("app").Names[0]
	if n.Name != "app.example" || !slices.Equal(n.Addresses, []string{"127.0.0.2"}) || n.Age <= 0 || n.Error == "" {
		t.Errorf("/clusters tells %+v", n)
	}
	if got := w.metric("weft_dns_lookups_total", `result="no_name"`); got < 1 {
		t.Errorf("weft_dns_lookups_total{result=\"no_name\"} = %v", got)
	}
}

// TestAConnectionOfALogicalHostStays verifies that an open connection stays in use after its host
// has got another address.
func TestAConnectionOfALogicalHostStays(t *testing.T) {
	t.Parallel()
	port := addressed(t, "127.0.0.2", "127.0.0.3")
	server := nameServer(t, "127.0.0.2")
	front := free()
	w := run(t, setup{
		listeners: list{listen("front", front)},
		tables:    list{table("front", to("/", "app"))},
		clusters: list{cluster("app", object{
			"type": "LOGICAL_DNS", "dns_refresh_rate": "20ms", "dns_resolvers": list{server.address},
		}, "app.example:"+port)},
	}.config())
	c := client(t)
	first := ask(t, c, "GET", "http://"+front, "")
	server.set(dns.RcodeSuccess, "127.0.0.3")
	eventually(t, "the new address is known", func() bool { return w.named("app").Hosts[0].Target == "127.0.0.3:"+port })
	for range 5 {
		if got := ask(t, c, "GET", "http://"+front, ""); got.body != first.body {
			t.Errorf("the open connection was %q, then %q", first.body, got.body)
		}
	}
}

// TestNamesThatChangeUnderLoad verifies that no request fails while the hosts of a STRICT_DNS
// cluster change under load.
func TestNamesThatChangeUnderLoad(t *testing.T) {
	t.Parallel()
	ips := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}
	port := addressed(t, ips...)
	server := nameServer(t, ips...)
	front := free()
	w := run(t, setup{
		listeners: list{listen("front", front)},
		tables:    list{table("front", to("/", "app", object{"timeout": "5s"}))},
		clusters: list{cluster("app", object{
			"type": "STRICT_DNS", "dns_refresh_rate": "10ms", "dns_resolvers": list{server.address}, "lb_type": "LB_ROUNDROBIN",
		}, "app.example:"+port)},
	}.config())
	var failed, served atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	c := client(t)
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				got, err := try(t.Context(), c, "GET", "http://"+front, "")
				if err != nil || got.status != 200 {
					failed.Add(1)
					continue
				}
				served.Add(1)
			}
		})
	}
	for i := range 30 {
		some := slices.Concat(ips[i%3:], ips[:i%3])[:1+i%3]
		server.set(dns.RcodeSuccess, some...)
		asked, before := server.asked.Load(), served.Load()
		eventually(t, "the answer was taken up", func() bool { return server.asked.Load() > asked+3 && served.Load() > before+20 })
	}
	stop()
	callers.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of %d requests failed", n, n+served.Load())
	}
	if n := w.metric("weft_dns_lookups_total", `result="ok"`); n < 30 {
		t.Errorf("%v lookups", n)
	}
}

// dnsExample runs dns.json. One of its clusters has a host for each address of the name, the other
// has one host with the first address.
func dnsExample(t *testing.T) {
	port := addressed(t, "127.0.0.2", "127.0.0.3")
	server := nameServer(t, "127.0.0.2", "127.0.0.3")
	e := openExample(t, "dns.json")
	w := e.run("dns.json", "NAME_SERVER="+server.address, "APP_PORT="+port)
	w.admin = e.at("34931")
	c, url := client(t), "http://"+e.at("3245")
	from := func(path string) string {
		seen := map[string]bool{}
		for range 8 {
			ip, _, _ := strings.Cut(ask(t, c, "GET", url+path, "").body, " ")
			seen[ip] = true
		}
		all := make([]string, 0, len(seen))
		for ip := range seen {
			all = append(all, ip)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	if got := from("/each"); got != "127.0.0.2 127.0.0.3" {
		t.Errorf("each address: %q", got)
	}
	if got := from("/"); got != "127.0.0.2" {
		t.Errorf("one name: %q", got)
	}
	if got := w.named("each-address").Names[0].Name; got != "shop" {
		t.Errorf("/clusters names %q", got)
	}
}
