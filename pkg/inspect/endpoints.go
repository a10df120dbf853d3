package inspect

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/weft-proxy/weft/internal/admin"
	"github.com/weft-proxy/weft/pkg/proxy"
)

// Endpoints returns the pages of the admin port, in the order of its index. A page whose source is
// nil has no handler.
func Endpoints(s Sources) []admin.Endpoint {
	s.counterResets = new(counterResets)
	var endpoints []admin.Endpoint
	help := admin.Endpoint{
		Method: "GET", Path: "/help", Doc: "The pages of the admin port in Envoy's format.",
		Handler: func(w http.ResponseWriter, _ *http.Request) {
			admin.WriteText(w, http.StatusOK, admin.HelpText(endpoints))
		},
	}
	endpoints = slices.Concat(s.statePages(), []admin.Endpoint{help}, s.envoyPages(), s.otherPages())
	return endpoints
}

// statePages returns the pages that show health, metrics and the active configuration.
func (s *Sources) statePages() []admin.Endpoint {
	var metrics http.HandlerFunc
	if s.Metrics != nil {
		metrics = s.Metrics.ServeHTTP
	}
	return []admin.Endpoint{
		{Method: "GET", Path: "/ready", Doc: "Whether requests are served: 200, or 503 while the process starts or drains.",
			Handler: handlerIf(s.State != nil, s.ready)},
		{Method: "GET", Path: "/healthz", Doc: "Whether the process is alive: always 200.",
			Handler: func(w http.ResponseWriter, _ *http.Request) { admin.WriteJSON(w, http.StatusOK, Status{Alive}) }},
		{Method: "GET", Path: "/stats/prometheus", Doc: "Metrics in the Prometheus text format.", Handler: metrics},
		{Method: "GET", Path: "/stats?filter=REGEX", Doc: "Statistics under the names that Envoy uses, one per line; all, or those whose names match. The parameters usedonly, type= and format=json work as in Envoy.",
			Handler: handlerIf(s.Samples != nil, s.stats),
			Parameters: []admin.Parameter{
				{Name: "usedonly", Doc: "Omit counters that are zero."}, {Name: "filter", Doc: "Regular expression (RE2) that matches a part of the name."},
				{Name: "type", Doc: "One of Counters and Gauges."}, {Name: "format", Doc: "One of text, json and prometheus."},
			}},
		{Method: "POST", Path: "/reset_counters", Doc: "Let the counters of /stats start at zero again. The Prometheus metrics keep their values.",
			Handler: handlerIf(s.Samples != nil, s.resetCounters)},
		{Method: "GET", Path: "/metrics", Doc: "The same as /stats/prometheus.", Handler: metrics},
		{Method: "GET", Path: "/config_dump", Doc: "The active configuration (secrets redacted) and its source; why the last configuration was rejected; and, in configs, the resources of the control plane in Envoy's format.",
			Handler: handlerIf(s.Config != nil, s.configDump),
			Parameters: []admin.Parameter{
				{Name: "resource", Doc: "Show only this list of resources of the control plane, such as dynamic_listeners."},
				{Name: "include_eds", Doc: "Also show endpoints."},
			}},
		{Method: "GET", Path: "/clusters?name=NAME", Doc: "Clusters with their hosts, health and connections; all, or one. With format=json, the format is Envoy's.",
			Handler:    handlerIf(s.Clusters != nil, s.clusters),
			Parameters: []admin.Parameter{{Name: "name", Doc: "Show only this cluster."}, {Name: "format", Doc: "With json, the format is Envoy's."}}},
		{Method: "GET", Path: "/listeners?name=NAME", Doc: "Listeners with their connections; all, or one.",
			Handler:    handlerIf(s.Listeners != nil, s.listeners),
			Parameters: []admin.Parameter{{Name: "name", Doc: "Show only this listener."}}},
		{Method: "GET", Path: "/routes?name=TABLE", Doc: "Route tables; all, or one.",
			Handler:    handlerIf(s.Routes != nil, s.routes),
			Parameters: []admin.Parameter{{Name: "name", Doc: "Show only this route table."}}},
		{Method: "GET", Path: "/overload", Doc: "The monitors and actions of the overload manager; 404 if none is configured.",
			Handler: handlerIf(s.Overload != nil, s.overload)},
	}
}

// envoyPages returns the pages that exist for Envoy's tools.
func (s *Sources) envoyPages() []admin.Endpoint {
	return []admin.Endpoint{
		{Method: "GET", Path: "/hot_restart_version", Doc: "Always disabled, as in Envoy without hot restart.",
			Handler: func(w http.ResponseWriter, _ *http.Request) { admin.WriteText(w, http.StatusOK, hotRestartVersion) }},
		{Method: "GET", Path: "/init_dump?mask=listener", Doc: "The listeners of the control plane that wait for other resources, in Envoy's format.",
			Handler:    handlerIf(s.UnreadyListeners != nil, s.initDump),
			Parameters: []admin.Parameter{{Name: "mask", Doc: "With listener, or without the parameter, all listeners; nothing else has targets."}}},
		{Method: "GET", Path: "/memory", Doc: "The memory of the process in Envoy's format.",
			Handler: handlerIf(s.ReadMemory != nil, s.memory)},
		{Method: "GET", Path: "/runtime", Doc: "The layers of the runtime and their values, in Envoy's format.",
			Handler: handlerIf(s.Runtime != nil, s.runtime)},
		{Method: "GET", Path: "/server_info", Doc: "Version, state and uptime in Envoy's format.",
			Handler: handlerIf(s.Process != nil, s.serverInfo)},
		{Method: "GET", Path: "/certs", Doc: "The certificates of listeners, clusters and control planes, in Envoy's format, with their days until expiration.",
			Handler: handlerIf(s.Certificates != nil, s.certs)},
	}
}

// otherPages returns the pages about control planes and the process, and the commands.
func (s *Sources) otherPages() []admin.Endpoint {
	return []admin.Endpoint{
		{Method: "GET", Path: "/xds", Doc: "The state of the control plane and its resources, as weft xds-status -o json prints it; 404 if none is configured.",
			Handler: handlerIf(s.XDS != nil, s.xds)},
		{Method: "GET", Path: "/explain?url=URL", Doc: "Which route and hosts a request would take, and why: see weft explain.",
			Handler:    handlerIf(s.Explain != nil, s.explain),
			Parameters: []admin.Parameter{{Name: "url", Doc: "The URL of the request. weft explain --help lists the other parameters."}}},
		{Method: "GET", Path: "/logging", Doc: "The log level.",
			Handler: handlerIf(s.Level != nil, s.level)},
		{Method: "POST", Path: "/logging?level=LEVEL", Doc: "Set the log level until a configuration sets it again.",
			Handler:    handlerIf(s.SetLevel != nil, s.setLevel),
			Parameters: []admin.Parameter{{Name: "level", Doc: "The log level."}}},
		{Method: "PUT", Path: "/logging?level=LEVEL", Doc: "The same as POST.",
			Handler: handlerIf(s.SetLevel != nil, s.setLevel)},
		{Method: "GET", Path: "/version", Doc: "Version, revision and Go version of the process.",
			Handler: handlerIf(s.Process != nil, s.version)},
		{Method: "POST", Path: "/reload", Doc: "Read the configuration again and return the result: 200, or 422 if it was rejected and the previous one stays active. The same as weft reload and SIGHUP.",
			Handler: handlerIf(s.Reload != nil, s.reload)},
		{Method: "POST", Path: "/healthcheck/fail", Doc: "Let health checks fail: /ready and the healthcheck filter respond with 503.",
			Handler: handlerIf(s.SetHealthFailed != nil, s.failHealth)},
		{Method: "POST", Path: "/healthcheck/ok", Doc: "End the effect of /healthcheck/fail.",
			Handler: handlerIf(s.SetHealthFailed != nil, s.restoreHealth)},
		{Method: "POST", Path: "/drain_listeners?graceful", Doc: "Stop accepting. Open connections continue, and the process does not exit.",
			Handler: handlerIf(s.DrainListeners != nil, s.drainListeners),
			Parameters: []admin.Parameter{
				{Name: "graceful", Doc: "First close connections after their responses, for the drain time."},
				{Name: "skip_exit", Doc: "Close connections after their responses, but do not stop accepting."},
				{Name: "inboundonly", Doc: "Only listeners that serve the local application."},
			}},
		{Method: "POST", Path: "/drain", Doc: "Stop accepting, finish the requests in flight, then exit.",
			Handler: handlerIf(s.Drain != nil, s.drain)},
		{Method: "POST", Path: "/quitquitquit", Doc: "Exit immediately, as SIGINT does.",
			Handler: handlerIf(s.Exit != nil, s.exit)},
		{Method: "GET", Path: admin.PprofPath, Doc: "Profiles for go tool pprof; only if `pprof.debug` is on and the profiler has no port of its own.",
			Handler: handlerIf(s.Pprof, admin.ServePprof)},
	}
}

// handlerIf returns h if the endpoint exists, else nil.
func handlerIf(exists bool, h http.HandlerFunc) http.HandlerFunc {
	if !exists {
		return nil
	}
	return h
}

func (s *Sources) ready(w http.ResponseWriter, _ *http.Request) {
	state := s.State()
	status := http.StatusOK
	if state != Ready {
		status = http.StatusServiceUnavailable
	}
	admin.WriteJSON(w, status, Status{state})
}

func (s *Sources) clusters(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name := query.Get("name")
	switch {
	case query.Get("format") == "json":
		admin.WriteJSON(w, http.StatusOK, NewEnvoyClusters(s.Clusters(), s.FileClusters()))
	case name == "":
		admin.WriteJSON(w, http.StatusOK, s.Clusters())
	default:
		c, found := s.Cluster(name)
		if !found {
			writeNotFound(w, "cluster", name)
			return
		}
		admin.WriteJSON(w, http.StatusOK, c)
	}
}

func (s *Sources) listeners(w http.ResponseWriter, r *http.Request) {
	statuses, name := s.Listeners(), r.URL.Query().Get("name")
	if name == "" {
		admin.WriteJSON(w, http.StatusOK, statuses)
		return
	}
	i := slices.IndexFunc(statuses, func(l proxy.ListenerStatus) bool { return l.Name == name })
	if i < 0 {
		writeNotFound(w, "listener", name)
		return
	}
	admin.WriteJSON(w, http.StatusOK, statuses[i])
}

func (s *Sources) routes(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	tables := s.Routes(name)
	switch {
	case name == "":
		admin.WriteJSON(w, http.StatusOK, tables)
	case len(tables) == 0:
		writeNotFound(w, "route table", name)
	default:
		admin.WriteJSON(w, http.StatusOK, tables[0])
	}
}

// writeNotFound responds with 404: there is no resource of that kind and name.
func writeNotFound(w http.ResponseWriter, kind, name string) {
	admin.WriteError(w, http.StatusNotFound, "there is no "+kind+" called "+name, "omit ?name= to list all")
}

// configDump writes the configuration. With ?resource= it writes only the selected resources of the
// control planes.
func (s *Sources) configDump(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	resource := query.Get("resource")
	var configs []json.RawMessage
	if s.Dump != nil {
		var err error
		if configs, err = s.Dump(resource, query.Has("include_eds")); err != nil {
			admin.WriteError(w, http.StatusBadRequest, err.Error(), "omit ?resource= to show all resources")
			return
		}
	}
	if resource != "" {
		if configs == nil {
			admin.WriteError(w, http.StatusNotFound, "no control plane is configured", "omit ?resource= to show all resources")
			return
		}
		admin.WriteJSON(w, http.StatusOK, Resources{configs})
		return
	}
	c := s.Config()
	c.Configs = configs
	admin.WriteJSON(w, http.StatusOK, c)
}

func (s *Sources) overload(w http.ResponseWriter, _ *http.Request) {
	if status := s.Overload(); status != nil {
		admin.WriteJSON(w, http.StatusOK, status)
		return
	}
	admin.WriteError(w, http.StatusNotFound, "no overload manager is configured", "")
}

func (s *Sources) serverInfo(w http.ResponseWriter, _ *http.Request) {
	admin.WriteJSON(w, http.StatusOK, NewServerInfo(s.Process()))
}

func (s *Sources) version(w http.ResponseWriter, _ *http.Request) {
	admin.WriteJSON(w, http.StatusOK, s.Process().Version)
}

func (s *Sources) xds(w http.ResponseWriter, _ *http.Request) {
	if status := s.XDS(); status != nil {
		admin.WriteJSON(w, http.StatusOK, status)
		return
	}
	admin.WriteError(w, http.StatusNotFound, "no control plane is configured", "see docs/xds.md")
}

func (s *Sources) explain(w http.ResponseWriter, r *http.Request) {
	result, err := s.Explain(r.URL.Query())
	if err != nil {
		admin.WriteError(w, http.StatusBadRequest, err.Error(), "/explain?url=http://host/path, or weft explain")
		return
	}
	admin.WriteJSON(w, http.StatusOK, result)
}

func (s *Sources) level(w http.ResponseWriter, _ *http.Request) {
	admin.WriteJSON(w, http.StatusOK, Level{s.Level()})
}

func (s *Sources) setLevel(w http.ResponseWriter, r *http.Request) {
	level := r.FormValue("level")
	if level == "" {
		admin.WriteError(w, http.StatusBadRequest, "the parameter level is missing", "/logging?level=debug")
		return
	}
	if err := s.SetLevel(level); err != nil {
		admin.WriteError(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	if s.Level != nil {
		level = s.Level()
	}
	admin.WriteJSON(w, http.StatusOK, Level{level})
}

func (s *Sources) failHealth(w http.ResponseWriter, _ *http.Request) {
	s.SetHealthFailed(true)
	admin.WriteText(w, http.StatusOK, okText)
}

func (s *Sources) restoreHealth(w http.ResponseWriter, _ *http.Request) {
	s.SetHealthFailed(false)
	admin.WriteText(w, http.StatusOK, okText)
}

func (s *Sources) exit(w http.ResponseWriter, _ *http.Request) {
	s.Exit()
	admin.WriteText(w, http.StatusOK, okText)
}

func (s *Sources) drain(w http.ResponseWriter, _ *http.Request) {
	s.Drain()
	admin.WriteJSON(w, http.StatusAccepted, Status{Draining})
}

func (s *Sources) reload(w http.ResponseWriter, r *http.Request) {
	result, err := s.Reload(r.Context())
	status := http.StatusOK
	switch {
	case err != nil:
		admin.WriteError(w, http.StatusServiceUnavailable, err.Error(), "")
		return
	case !result.Applied:
		status = http.StatusUnprocessableEntity
	}
	admin.WriteJSON(w, status, result)
}
