package peer

import (
	"encoding/json"
	"fmt"
)

// Weft returns the Weft at the path. Several builds have different names.
func Weft(name, path string) Program {
	return Program{Name: name, Path: path, version: []string{"version"}, configure: func(c Config) ([]string, error) {
		text, err := weftConfig(c, []virtualHost{{
			Name:    "all",
			Domains: []string{"*"},
			Routers: []router{{Match: match{Prefix: "/"}, Route: &route{Cluster: "origin"}}},
		}}, []cluster{oneHost("origin", c)})
		if err != nil {
			return nil, err
		}
		path, err := write(c.Dir, "config.json", string(text))
		return WeftStartArgs(path), err
	}}
}

// WeftStartArgs returns the arguments that make Weft run the file.
func WeftStartArgs(path string) []string { return []string{"start", "-c", path} }

// WeftCheckArgs returns the arguments that make Weft check the file.
func WeftCheckArgs(path string) []string { return []string{"check", "-c", path} }

// Scale is the size of a large configuration.
type Scale struct {
	Clusters int // two hosts each on average
	Domains  int // virtual hosts
	Routes   int // total, evenly divided among the virtual hosts
}

// scaleTarget is the path of the last route of the last virtual host. This virtual host also has
// the domain "*".
const scaleTarget = "/last/route"

// WeftScale returns a large configuration and the path that its last route matches. If
// respondDirectly is true, the last route responds with 204. Otherwise it forwards to the origin,
// which responds with 1 KB. The two configurations are otherwise equal.
//
// The hosts of the other clusters are distinct addresses of 127.0.0.0/8 without a listener; no
// request goes to them. Half of the routes of a virtual host match a path and half a prefix.
func WeftScale(c Config, s Scale, respondDirectly bool) (text []byte, target string, err error) {
	clusters := []cluster{oneHost("origin", c)}
	for i := 1; i < s.Clusters; i++ {
		name := fmt.Sprintf("service-%05d", i)
		service := cluster{Name: name, Type: "SIMPLE", Balance: "LB_ROUNDROBIN", Breakers: unlimitedBreakers}
		count := 2
		if i == 1 {
			count = 3 // the cluster "origin" has only one host
		}
		for h := range count {
			n := 2*i + h
			if h == 2 {
				n = 0
			}
			service.Hosts = append(service.Hosts, host{Address: fmt.Sprintf("127.%d.%d.%d:8080", 1+n/62500, n/250%250, 1+n%250)})
		}
		clusters = append(clusters, service)
	}
	perHost := s.Routes / s.Domains
	var hosts []virtualHost
	for d := range s.Domains {
		vhost := virtualHost{Name: fmt.Sprintf("host-%04d", d), Domains: []string{fmt.Sprintf("host-%04d.example.test", d)}}
		for r := range perHost {
			m := match{Path: fmt.Sprintf("/api/v1/resource-%d/item", r)}
			if r%2 == 1 {
				m = match{Prefix: fmt.Sprintf("/api/v1/collection-%d/", r)}
			}
			clusterName := clusters[1+(d*perHost+r)%(len(clusters)-1)].Name
			vhost.Routers = append(vhost.Routers, router{Match: m, Route: &route{Cluster: clusterName}})
		}
		hosts = append(hosts, vhost)
	}
	last := &hosts[len(hosts)-1]
	last.Domains = append(last.Domains, "*")
	probe := router{Match: match{Path: scaleTarget}, Route: &route{Cluster: "origin", PrefixRewrite: "/b/1024"}}
	if respondDirectly {
		probe = router{Match: match{Path: scaleTarget}, Direct: &directResponse{Status: 204}}
	}
	last.Routers[len(last.Routers)-1] = probe
	text, err = weftConfig(c, hosts, clusters)
	return text, scaleTarget, err
}

// unlimitedBreakers disables the limits of a cluster, which by default allow 1,024 concurrent
// requests: the other programs under test have no such limits.
var unlimitedBreakers = []breakers{{}} //nolint:gochecknoglobals // never changed

// oneHost returns a cluster with c's origin as its only host.
func oneHost(name string, c Config) cluster {
	cl := cluster{Name: name, Type: "SIMPLE", Balance: "LB_ROUNDROBIN", Breakers: unlimitedBreakers, Hosts: []host{{Address: c.Origin.String()}}}
	if c.MaxQueued > 0 {
		cl.Pool = &pool{c.MaxQueued}
	}
	return cl
}

// The subset of config.json that this package writes; docs/reference describes the keys.
type (
	virtualHost struct {
		Name    string   `json:"name"`
		Domains []string `json:"domains"`
		Routers []router `json:"routers"`
	}
	router struct {
		Match  match           `json:"match"`
		Route  *route          `json:"route,omitempty"`
		Direct *directResponse `json:"direct_response,omitempty"`
	}
	match struct {
		Prefix string `json:"prefix,omitempty"`
		Path   string `json:"path,omitempty"`
	}
	route struct {
		Cluster       string `json:"cluster_name"`
		PrefixRewrite string `json:"prefix_rewrite,omitempty"`
	}
	directResponse struct {
		Status int `json:"status"`
	}
	cluster struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Balance  string `json:"lb_type"`
		Requests int    `json:"max_request_per_conn"` // 0: no limit
		Hosts    []host `json:"hosts"`

		Breakers []breakers `json:"circuit_breakers"`
		Pool     *pool      `json:"connection_pool,omitempty"`
	}
	pool struct {
		MaxQueued int `json:"max_queued_bytes"`
	}
	breakers struct { // 0: no limit
		Connections int `json:"max_connections"`
		Pending     int `json:"max_pending_requests"`
		Requests    int `json:"max_requests"`
	}
	host struct {
		Address string `json:"address"`
	}
	object map[string]any
)

// weftConfig returns a config.json with one listener.
func weftConfig(c Config, hosts []virtualHost, clusters []cluster) ([]byte, error) {
	version := func(http2 bool) string {
		switch {
		case c.Protocol != nil:
			return c.Protocol.Name()
		case http2:
			return "Http2"
		}
		return "Http1"
	}
	proxy := object{"type": "proxy", "config": object{
		"downstream_protocol": version(c.HTTP.ClientHTTP2), "upstream_protocol": version(c.HTTP.OriginHTTP2),
		"router_config_name": "routes"}}
	chain := object{"filters": []object{proxy}}
	if c.HTTP.MutualTLS {
		chain["tls_context"] = object{
			"status": true, "min_version": "tlsv1_3", "require_client_cert": true,
			"ca_cert": c.Certificates.CA(), "cert_chain": c.Certificates.Certificate(), "private_key": c.Certificates.Key(),
		}
	}
	root := object{
		"servers": []object{{
			"default_log_level": "ERROR",
			"listeners": []object{{
				"name":                    "bench",
				"address":                 c.Listen.String(),
				"bind_port":               true,
				"connection_idle_timeout": "300s",
				"filter_chains":           []object{chain},
			}},
			"routers": []object{{"router_config_name": "routes", "virtual_hosts": hosts}},
		}},
		"cluster_manager": object{"clusters": clusters},
		"admin": object{"address": object{"socket_address": object{
			"address": c.Admin.Addr().String(), "port_value": c.Admin.Port()}}},
	}
	if c.Profile {
		root["pprof"] = object{"debug": true}
	}
	return json.MarshalIndent(root, "", " ")
}
