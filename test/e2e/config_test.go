package e2e

import (
	"encoding/json"
	"maps"
	"net"
	"strconv"
	"testing"

	"github.com/weft-proxy/weft/test/ports"
)

// object and list are JSON.
type (
	object map[string]any
	list   []any
)

// text is the configuration file.
func (o object) text(t *testing.T) []byte {
	t.Helper()
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// with returns o with more keys, or other values.
func (o object) with(more object) object {
	all := object{}
	for _, from := range []object{o, more} {
		maps.Copy(all, from)
	}
	return all
}

// admin is the address of the admin port that o opens.
func (o object) admin() string {
	a, ok := o["admin"].(object)
	if !ok {
		return ""
	}
	s := a["address"].(object)["socket_address"].(object)
	return net.JoinHostPort(s["address"].(string), strconv.Itoa(s["port_value"].(int)))
}

// setup is a whole configuration in its usual parts.
type setup struct {
	server    object // beside listeners and routers
	listeners list
	tables    list
	clusters  list
	more      object // beside servers, cluster_manager and admin
	admin     string // "": a free port
}

// config is the file's content. It has an admin port with the profiler.
func (s setup) config() object {
	if s.admin == "" {
		s.admin = free()
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
	}.with(s.more)
}

// listen is a listener for HTTP whose name is also that of its route table.
func listen(name, address string, more ...object) object {
	return chained(name, address, object{"type": "proxy", "config": object{
		"downstream_protocol": "Http1", "router_config_name": name}}, more...)
}

// listenWith is listen with an extend_config.
func listenWith(name, address string, extend object, more ...object) object {
	return chained(name, address, object{"type": "proxy", "config": object{
		"downstream_protocol": "Http1", "router_config_name": name, "extend_config": extend}}, more...)
}

// carry is a listener for bytes.
func carry(name, address string, config object, more ...object) object {
	return chained(name, address, object{"type": "tcp_proxy", "config": config}, more...)
}

func chained(name, address string, filter object, more ...object) object {
	l := object{
		"name": name, "address": address,
		"filter_chains": list{object{"filters": list{filter}}},
	}
	for _, m := range more {
		l = l.with(m)
	}
	return l
}

// table is a route table with one virtual host for every domain.
func table(name string, routes ...object) object {
	return object{"router_config_name": name, "virtual_hosts": list{object{
		"name": "all", "domains": list{"*"}, "routers": routes}}}
}

// to is a route of a prefix to a cluster.
func to(prefix, cluster string, more ...object) object {
	action := object{"cluster_name": cluster}
	for _, m := range more {
		action = action.with(m)
	}
	return object{"match": object{"prefix": prefix}, "route": action}
}

// says is a route that answers by itself.
func says(prefix string, status int, body string) object {
	return object{"match": object{"prefix": prefix}, "direct_response": object{"status": status, "body": body}}
}

// cluster is a cluster of hosts, in turns.
func cluster(name string, more object, addresses ...string) object {
	hosts := list{}
	for _, a := range addresses {
		hosts = append(hosts, object{"address": a})
	}
	return object{"name": name, "lb_type": "LB_ROUNDROBIN", "hosts": hosts}.with(more)
}

// filterOf is a stream filter in a listener's list.
func filterOf(name string, config object) object { return object{"type": name, "config": config} }

// simple is a proxy in front of hosts: its configuration and its address.
func simple(hosts ...string) (setup, string) {
	front := free()
	return setup{
		listeners: list{listen("front", front)},
		tables:    list{table("front", to("/", "app"))},
		clusters:  list{cluster("app", nil, hosts...)},
	}, front
}

// freePorts are those of this package.
var freePorts = ports.EndToEnd()

// free is a loopback address that nobody listens on.
func free() string { return freeOn("127.0.0.1") }

func freeOn(ip string) string {
	port, err := freePorts.Free(ip)
	if err != nil {
		panic(err)
	}
	return net.JoinHostPort(ip, strconv.Itoa(port))
}
