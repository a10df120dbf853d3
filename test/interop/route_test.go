package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// route is a way from consumer to provider.
type route string

const (
	direct  route = "direct"
	once    route = "once"    // one Weft
	through route = "through" // two Wefts in a row: the consumer's sidecar, and the provider's
)

// object is JSON.
type object map[string]any

// sidecars are two Wefts in a row before providers.
type sidecars struct {
	problem   string // why there are none; "" if there are
	ports     []int  // of the consumer's sidecar, one for each service
	between   []int  // of the provider's sidecar, one for each service
	near, far *peer  // the consumer's sidecar, and the provider's
}

// to is what leads to one service.
func (s sidecars) to(service int) sidecars {
	if s.problem == "" {
		s.ports, s.between = s.ports[service:service+1], s.between[service:service+1]
	}
	return s
}

// service is where the providers of one service listen, each of which may answer.
type service struct {
	hosts  []int  // ports
	change object // further keys of its routes in the consumer's sidecar
	beside object // keys that those routes have beside the action
}

// refusing is keys of routes that let nobody through: by the filter "fault", which
// stands in listeners whose routes name it.
func refusing() object {
	return object{"per_filter_config": object{"fault": object{"abort": object{"percentage": 100}}}}
}

// missing is keys of routes that match no request.
func missing() object { return object{"match": object{"path": "/nowhere"}} }

// startSidecars starts two Wefts that carry a protocol to services. What the proxy
// says that it does not support yet is the result's problem; every other refusal
// is an error.
func startSidecars(t *testing.T, protocol string, services ...service) sidecars {
	t.Helper()
	var s sidecars
	var middle, last []service
	for _, svc := range services {
		port := freePort(t)
		s.ports, s.between = append(s.ports, freePort(t)), append(s.between, port)
		middle = append(middle, service{hosts: []int{port}, change: svc.change, beside: svc.beside})
		last = append(last, service{hosts: svc.hosts})
	}
	client := writeConfig(t, "client", protocol, s.ports, middle)
	server := writeConfig(t, "server", protocol, s.between, last)
	for _, path := range []string{client, server} {
		if problem := unsupported(t, path); problem != "" {
			return sidecars{problem: problem}
		}
	}
	weft := os.Getenv(weftKey)
	s.far = start(t, "the provider's weft", weft, "start", "-c", server)
	s.near = start(t, "the consumer's weft", weft, "start", "-c", client)
	s.far.awaitServing(t)
	s.near.awaitServing(t)
	return s
}

// awaitServing waits for the line that says that all listeners are open, and
// leaves the rest unread.
func (p *peer) awaitServing(t *testing.T) {
	t.Helper()
	for !strings.Contains(p.line(t, patience), "is ready") {
		continue
	}
}

// unsupported is what "weft check" says the proxy cannot do yet; "" if it can. Any
// other complaint fails the test.
func unsupported(t *testing.T, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, os.Getenv(weftKey), "check", "-c", path).CombinedOutput()
	if err == nil {
		return ""
	}
	problem := ""
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, path+":") {
			continue // the summary
		}
		if !strings.Contains(line, "is not supported yet") {
			t.Fatalf("weft check: %v\n%s", err, out)
		}
		problem = strings.TrimSpace(line[strings.LastIndex(line, ": ")+2:])
	}
	if problem == "" {
		t.Fatalf("weft check: %v\n%s", err, out)
	}
	return problem
}

// writeConfig writes the configuration of a sidecar that listens on ports, and
// sends what comes in on each to the service of the same index.
func writeConfig(t *testing.T, name, protocol string, ports []int, services []service) string {
	t.Helper()
	var listeners, routers, clusters []object
	for i, port := range ports {
		id := fmt.Sprintf("%s-%d", name, i)
		listener := object{
			"name":    id,
			"address": address(port),
			"filter_chains": []object{{"filters": []object{{"type": "proxy", "config": object{
				"downstream_protocol": protocol,
				"upstream_protocol":   protocol,
				"router_config_name":  id,
				"extend_config":       object{"enable_bolt_goaway": true},
			}}}}},
		}
		if services[i].beside["per_filter_config"] != nil {
			listener["stream_filters"] = []object{{"type": "fault"}}
		}
		listeners = append(listeners, listener)
		routers = append(routers, object{
			"router_config_name": id,
			"virtual_hosts": []object{{"name": id, "domains": []string{"*"}, "routers": []object{
				// The usual route of RPC; and one for frames of which only the head
				// can be read, because their serialization is foreign.
				services[i].route(object{"headers": []object{{"name": "service", "value": ".*", "regex": true}}}, id),
				services[i].route(object{"prefix": "/"}, id),
			}}},
		})
		var hosts []object
		for _, p := range services[i].hosts {
			hosts = append(hosts, object{"address": address(p)})
		}
		clusters = append(clusters, object{
			"name": id, "type": "SIMPLE", "lb_type": "LB_ROUNDROBIN", "hosts": hosts,
			// A provider gives up who is silent for six seconds.
			"keepalive":    object{"interval": "1s", "timeout": "3s"},
			"idle_timeout": "10m",
		})
	}
	text, err := json.MarshalIndent(object{
		"servers":         []object{{"default_log_path": "stderr", "listeners": listeners, "routers": routers}},
		"cluster_manager": object{"clusters": clusters},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// route is the route of what matches to the service by a cluster.
func (s service) route(match object, cluster string) object {
	action := object{"cluster_name": cluster}
	maps.Copy(action, s.change)
	route := object{"match": match, "route": action}
	maps.Copy(route, s.beside)
	return route
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
