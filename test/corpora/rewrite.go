package corpora

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// addresses says where a proxy listens and where its origin is.
type addresses struct {
	freePort func() (int, error)
	origin   int // HTTP/1.1, and HTTP/2 with prior knowledge
	tls      int // the same with TLS
}

// runnable is a configuration that can run on this machine.
type runnable struct {
	text      []byte
	admin     int // port
	listeners []listener
	waits     bool // for a control plane, before Envoy listens
}

// listener is a TCP listener of a runnable.
type listener struct {
	port     int
	resource object // of the bootstrap
}

// rewrite replaces the addresses of a bootstrap: listeners and the admin port get free ports on
// 127.0.0.1, and the endpoints of all clusters are the origin.
func rewrite(text []byte, a addresses) (*runnable, error) {
	var root object
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	delete(root, "dynamic_sockets") // a key that Envoy ignores
	r := &runnable{}
	var err error
	if r.admin, err = a.freePort(); err != nil {
		return nil, err
	}
	root["admin"] = object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": r.admin}}}
	static, _ := get(root, "static_resources").(object)
	if err := rewriteListeners(static, a, r); err != nil {
		return nil, err
	}
	clusters, _ := static["clusters"].([]any)
	for _, c := range clusters {
		if cluster, ok := c.(object); ok {
			rewriteEndpoints(cluster, a)
		}
	}
	objects(get(root, "dynamic_resources"), func(m object) { r.waits = r.waits || get(m, "api_config_source") != nil || get(m, "ads_config") != nil })
	r.text, err = json.MarshalIndent(root, "", " ")
	return r, err
}

func rewriteListeners(static object, a addresses, r *runnable) error {
	listeners, _ := static["listeners"].([]any)
	for i, element := range listeners {
		l, ok := element.(object)
		address, isObject := get(l, "address").(object)
		if !ok || !isObject {
			continue
		}
		socket, isSocket := get(address, "socket_address").(object)
		if !isSocket {
			continue
		}
		port, err := a.freePort()
		if err != nil {
			return err
		}
		if name, _ := l["name"].(string); name == "" {
			l["name"] = fmt.Sprintf("listener %d", i)
		}
		remove(l, "additional_addresses")
		remove(l, "filter_disabled")
		protocol, _ := socket["protocol"].(string)
		for key := range socket {
			if key != "protocol" {
				delete(socket, key)
			}
		}
		socket["address"], socket["port_value"] = "127.0.0.1", port
		if protocol != "UDP" {
			r.listeners = append(r.listeners, listener{port, l})
		}
	}
	return nil
}

// rewriteEndpoints makes the origin the only host of a cluster, at each of its endpoints.
func rewriteEndpoints(cluster object, a addresses) {
	port := a.origin
	if socket, ok := get(cluster, "transport_socket").(object); ok && strings.Contains(fmt.Sprint(socket), "tls") {
		port = a.tls
	}
	objects(get(cluster, "load_assignment"), func(m object) {
		if socket, ok := get(m, "socket_address").(object); ok {
			set(m, "socket_address", object{"address": "127.0.0.1", "port_value": port})
			remove(m, "socketAddress")
			_ = socket
		}
		remove(m, "health_check_config")
	})
}

// mosnAddress matches an address with a port in a configuration of MOSN.
var mosnAddress = regexp.MustCompile(`"((?:\d+\.\d+\.\d+\.\d+|localhost)?):(\d{2,5})"`)

// rewriteMOSN replaces each port of a configuration of MOSN by a free port, the same one for the
// same port.
func rewriteMOSN(text []byte, a addresses) (*runnable, error) {
	r := &runnable{}
	ports := map[string]int{}
	var failure error
	r.text = mosnAddress.ReplaceAllFunc(text, func(quoted []byte) []byte {
		_, port, _ := strings.Cut(strings.Trim(string(quoted), `"`), ":")
		if ports[port] == 0 {
			free, err := a.freePort()
			if err != nil {
				failure = err
				return quoted
			}
			ports[port] = free
		}
		return []byte(`"127.0.0.1:` + strconv.Itoa(ports[port]) + `"`)
	})
	if failure != nil {
		return nil, failure
	}
	var root object
	if err := yaml.Unmarshal(r.text, &root); err != nil {
		return nil, err
	}
	servers, _ := root["servers"].([]any)
	for _, s := range servers {
		server, _ := s.(object)
		listeners, _ := server["listeners"].([]any)
		for _, element := range listeners {
			l, _ := element.(object)
			address, _ := l["address"].(string)
			_, port, _ := strings.Cut(address, ":")
			number, err := strconv.Atoi(port)
			if err == nil && l["network"] != "udp" && l["bind_port"] != false {
				r.listeners = append(r.listeners, listener{number, l})
			}
		}
	}
	return r, nil
}
