package e2e

import (
	"encoding/json"
	"maps"
	"net"
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/test/ports"
)

// object and list are JSON objects and lists.
type (
	object map[string]any
	list   []any
)

// encode returns o as a configuration file.
func (o object) encode(t *testing.T) []byte {
	t.Helper()
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// with returns a copy of o with the keys of extra, which take precedence.
func (o object) with(extra object) object {
	out := object{}
	for _, source := range []object{o, extra} {
		maps.Copy(out, source)
	}
	return out
}

// admin returns the address of the admin listener in o, or "" if there is none.
func (o object) admin() string {
	a, ok := o["admin"].(object)
	if !ok {
		return ""
	}
	s := a["address"].(object)["socket_address"].(object)
	return net.JoinHostPort(s["address"].(string), strconv.Itoa(s["port_value"].(int)))
}

// setup holds the parts of a configuration.
type setup struct {
	server    object // keys of the server other than listeners and routers
	listeners list
	tables    list
	clusters  list
	extra     object // further top-level keys
	admin     string // "": a free port
}

// config returns the configuration, with an admin listener and the profiler.
func (s setup) config() object {
	if s.admin == "" {
		s.admin = freeAddress()
	}
	server := object{"default_log_level": "INFO", "graceful_timeout": "5s"}.with(s.server)
	server["listeners"], server["routers"] = s.listeners, s.tables
	host, port, _ := net.SplitHostPort(s.admin)
	n, _ := strconv.Atoi(port)
	return object{
		"servers":         list{server},
		"cluster_manager": object{"clusters": s.clusters},
		"admin":           object{"address": object{"socket_address": object{"address": host, "port_value": n}}},
		"pprof":           object{"debug": true},
	}.with(s.extra)
}

// httpListener returns an HTTP/1.1 listener whose route table has the same name.
func httpListener(name, address string, extra ...object) object {
	return networkListener(name, address, object{"type": "proxy", "config": object{
		"downstream_protocol": "Http1", "router_config_name": name}}, extra...)
}

// httpListenerWith is httpListener with an extend_config.
func httpListenerWith(name, address string, extend object, extra ...object) object {
	return networkListener(name, address, object{"type": "proxy", "config": object{
		"downstream_protocol": "Http1", "router_config_name": name, "extend_config": extend}}, extra...)
}

// tcpListener returns a listener with a tcp_proxy filter.
func tcpListener(name, address string, config object, extra ...object) object {
	return networkListener(name, address, object{"type": "tcp_proxy", "config": config}, extra...)
}

func networkListener(name, address string, filter object, extra ...object) object {
	l := object{
		"name": name, "address": address,
		"filter_chains": list{object{"filters": list{filter}}},
	}
	for _, m := range extra {
		l = l.with(m)
	}
	return l
}

// routeTable returns a route table with one virtual host for every domain.
func routeTable(name string, routes ...object) object {
	return object{"router_config_name": name, "virtual_hosts": list{object{
		"name": "all", "domains": list{"*"}, "routers": routes}}}
}

// routeTo returns a route from a path prefix to a cluster.
func routeTo(prefix, cluster string, extra ...object) object {
	action := object{"cluster_name": cluster}
	for _, m := range extra {
		action = action.with(m)
	}
	return object{"match": object{"prefix": prefix}, "route": action}
}

// directRoute returns a route with a direct response.
func directRoute(prefix string, status int, body string) object {
	return object{"match": object{"prefix": prefix}, "direct_response": object{"status": status, "body": body}}
}

// cluster returns a round-robin cluster with hosts at addresses.
func cluster(name string, extra object, addresses ...string) object {
	hosts := list{}
	for _, a := range addresses {
		hosts = append(hosts, object{"address": a})
	}
	return object{"name": name, "lb_type": "LB_ROUNDROBIN", "hosts": hosts}.with(extra)
}

// streamFilter returns a stream filter for the list of a listener.
func streamFilter(name string, config object) object { return object{"type": name, "config": config} }

// simpleProxy returns the configuration of a proxy in front of hosts, and the address of the proxy.
func simpleProxy(hosts ...string) (setup, string) {
	front := freeAddress()
	return setup{
		listeners: list{httpListener("front", front)},
		tables:    list{routeTable("front", routeTo("/", "app"))},
		clusters:  list{cluster("app", nil, hosts...)},
	}, front
}

// freePorts allocates ports from the range of this package.
var freePorts = ports.EndToEnd()

// freeAddress returns a loopback address with a free port.
func freeAddress() string { return freeAddressOn("127.0.0.1") }

func freeAddressOn(ip string) string {
	port, err := freePorts.Free(ip)
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort(ip, strconv.Itoa(port))
}
