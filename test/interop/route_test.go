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

// callPath is the path of calls from consumer to provider.
type callPath string

const (
	direct   callPath = "direct"
	oneWeft  callPath = "once"    // one Weft
	twoWefts callPath = "through" // two Wefts in a row: the consumer's sidecar, and the provider's
)

// object is a JSON object.
type object map[string]any

// sidecars are two Wefts in a row in front of providers.
type sidecars struct {
	problem                          string // why the sidecars cannot run; "": they run
	ports                            []int  // of the consumer's sidecar, one for each service
	providerSidecarPorts             []int  // of the provider's sidecar, one for each service
	consumerSidecar, providerSidecar *peer  // the consumer's sidecar, and the provider's
}

// forService returns the sidecars with the ports of one service.
func (s sidecars) forService(service int) sidecars {
	if s.problem == "" {
		s.ports, s.providerSidecarPorts = s.ports[service:service+1], s.providerSidecarPorts[service:service+1]
	}
	return s
}

// service is the providers of one service. Any of them may respond.
type service struct {
	hosts      []int  // ports
	actionKeys object // additional keys of its route actions in the consumer's sidecar
	routeKeys  object // additional keys of those routes, next to the action
}

// abortKeys returns keys of routes that reject every request with the filter "fault". writeConfig
// adds the filter to the listeners of such routes.
func abortKeys() object {
	return object{"per_filter_config": object{"fault": object{"abort": object{"percentage": 100}}}}
}

// unmatchedKeys returns keys of routes that match no request.
func unmatchedKeys() object { return object{"match": object{"path": "/nowhere"}} }

// startSidecars starts two Wefts that forward a protocol to services. If "weft check" reports a
// feature as not supported yet, that is the problem of the result. Any other error fails the test.
func startSidecars(t *testing.T, protocol string, services ...service) sidecars {
	t.Helper()
	var s sidecars
	var consumerServices, providerServices []service
	for _, svc := range services {
		port := freePort(t)
		s.ports, s.providerSidecarPorts = append(s.ports, freePort(t)), append(s.providerSidecarPorts, port)
		consumerServices = append(consumerServices, service{hosts: []int{port}, actionKeys: svc.actionKeys, routeKeys: svc.routeKeys})
		providerServices = append(providerServices, service{hosts: svc.hosts})
	}
	client := writeConfig(t, "client", protocol, s.ports, consumerServices)
	server := writeConfig(t, "server", protocol, s.providerSidecarPorts, providerServices)
	for _, path := range []string{client, server} {
		if problem := unsupported(t, path); problem != "" {
			return sidecars{problem: problem}
		}
	}
	weft := os.Getenv(weftEnv)
	s.providerSidecar = start(t, "the provider's weft", weft, "start", "-c", server)
	s.consumerSidecar = start(t, "the consumer's weft", weft, "start", "-c", client)
	s.providerSidecar.awaitServing(t)
	s.consumerSidecar.awaitServing(t)
	return s
}

// awaitServing waits for the line that reports that all listeners are open. It leaves later lines
// unread.
func (p *peer) awaitServing(t *testing.T) {
	t.Helper()
	for !strings.Contains(p.nextLine(t, waitTimeout), "is ready") {
		continue
	}
}

// unsupported returns the feature that "weft check" reports as not supported yet, or "". Any other
// error fails the test.
func unsupported(t *testing.T, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, os.Getenv(weftEnv), "check", "-c", path).CombinedOutput()
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

// writeConfig writes the configuration of a sidecar that listens on ports, and forwards each port
// to the service with the same index.
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
		if services[i].routeKeys["per_filter_config"] != nil {
			listener["stream_filters"] = []object{{"type": "fault"}}
		}
		listeners = append(listeners, listener)
		routers = append(routers, object{
			"router_config_name": id,
			"virtual_hosts": []object{{"name": id, "domains": []string{"*"}, "routers": []object{
				// The usual route of RPC, and one for frames whose serialization Weft cannot read.
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
			// A provider closes a connection without traffic after six seconds.
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

// route returns a route to cluster for requests that match.
func (s service) route(match object, cluster string) object {
	action := object{"cluster_name": cluster}
	maps.Copy(action, s.actionKeys)
	route := object{"match": match, "route": action}
	maps.Copy(route, s.routeKeys)
	return route
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
