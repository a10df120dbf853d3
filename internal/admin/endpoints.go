package admin

import (
	"net/http"
	"net/http/pprof"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// Endpoint describes one endpoint of the admin port, for the index and for documentation.
type Endpoint struct {
	Method string // "GET", "POST", "PUT"
	Path   string // with an example of its query, if it takes one
	Doc    string // one sentence
}

// endpoint is an Endpoint with its handler.
type endpoint struct {
	Endpoint
	route   string // Path without its query
	enabled bool
	handler http.HandlerFunc
}

// Endpoints returns the endpoints of a port that has every source and Pprof.
func Endpoints() []Endpoint {
	var all []Endpoint
	for _, e := range endpoints(Options{}) {
		all = append(all, e.Endpoint)
	}
	return all
}

// endpoints returns the table of all endpoints.
func endpoints(o Options) []endpoint {
	s := &o.Sources
	named := func(source func(string) any, kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { writeNamed(w, r, source, kind) }
	}
	metrics := func(w http.ResponseWriter, r *http.Request) { s.Metrics.ServeHTTP(w, r) }
	return []endpoint{
		{Endpoint{"GET", "/ready", "Whether requests are served: 200, or 503 while the process starts or drains."},
			"/ready", s.State != nil, s.ready},
		{Endpoint{"GET", "/healthz", "Whether the process is alive: always 200."},
			"/healthz", true, serveHealthz},
		{Endpoint{"GET", "/stats/prometheus", "Metrics in the Prometheus text format."},
			"/stats/prometheus", s.Metrics != nil, metrics},
		{Endpoint{"GET", "/stats?filter=REGEX", "Statistics under the names that Envoy uses, one per line; all, or those whose names match. The parameters usedonly, type= and format=json work as in Envoy."},
			"/stats", s.Stats != nil, s.stats},
		{Endpoint{"GET", "/metrics", "The same as /stats/prometheus."},
			"/metrics", s.Metrics != nil, metrics},
		{Endpoint{"GET", "/config_dump", "The active configuration without its secrets, its source, why the last configuration was rejected and, in configs, the resources of the control plane in Envoy's format."},
			"/config_dump", s.Config != nil, s.configDump},
		{Endpoint{"GET", "/clusters?name=NAME", "Clusters with their hosts, health and connections; all, or one. With format=json, the format is Envoy's."},
			"/clusters", s.Clusters != nil, s.clusters},
		{Endpoint{"GET", "/listeners?name=NAME", "Listeners with their connections; all, or one."},
			"/listeners", s.Listeners != nil, named(s.Listeners, "listener")},
		{Endpoint{"GET", "/routes?name=TABLE", "Route tables; all, or one."},
			"/routes", s.Routes != nil, named(s.Routes, "route table")},
		{Endpoint{"GET", "/overload", "The monitors and actions of the overload manager; 404 if none is configured."},
			"/overload", s.Overload != nil, s.overload},
		{Endpoint{"GET", "/server_info", "Version, state and uptime in Envoy's format."},
			"/server_info", s.ServerInfo != nil, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.ServerInfo()) }},
		{Endpoint{"GET", "/xds", "The state of the control plane and its resources, as weft xds-status prints it; 404 if none is configured."},
			"/xds", s.XDS != nil, s.xds},
		{Endpoint{"GET", "/explain?url=URL", "Which route and hosts a request would take, and why: see weft explain."},
			"/explain", s.Explain != nil, s.explain},
		{Endpoint{"GET", "/logging", "The log level."},
			"/logging", s.Level != nil, s.level},
		{Endpoint{"POST", "/logging?level=LEVEL", "Set the log level until a configuration sets it again."},
			"/logging", s.SetLevel != nil, s.setLevel},
		{Endpoint{"PUT", "/logging?level=LEVEL", "The same as POST."},
			"/logging", s.SetLevel != nil, s.setLevel},
		{Endpoint{"GET", "/version", "Version, revision and Go version of the process."},
			"/version", s.Version != nil, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.Version()) }},
		{Endpoint{"POST", "/reload", "Read the configuration again and return the result: 200, or 422 if it was rejected and the previous one stays active. The same as weft reload and SIGHUP."},
			"/reload", s.Reload != nil, s.reload},
		{Endpoint{"POST", "/drain", "Stop accepting, finish the requests in flight, then exit."},
			"/drain", s.Drain != nil, s.drain},
		{Endpoint{"GET", "/debug/pprof/", "Profiles for go tool pprof; only if `pprof.debug` is on."},
			"/debug/pprof/*", o.Pprof, servePprof},
	}
}

func newHandler(o Options) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusNotFound, "page not found", "/ lists all pages")
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		for _, method := range []string{"GET", "POST", "PUT"} {
			if r.Match(chi.NewRouteContext(), method, req.URL.Path) {
				w.Header().Add("Allow", method) // RFC 9110 15.5.6
			}
		}
		writeError(w, http.StatusMethodNotAllowed, "this page does not support the method "+req.Method, "/ lists all pages")
	})
	var there []Endpoint
	for _, e := range endpoints(o) {
		if e.enabled {
			there = append(there, e.Endpoint)
			r.Method(e.Method, e.route, e.handler)
		}
	}
	r.Get("/", index(there))
	return newGuard(o.Hosts, r)
}

func (s *Sources) ready(w http.ResponseWriter, _ *http.Request) {
	state := s.State()
	status := http.StatusOK
	if state != Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, map[string]State{"state": state})
}

func (s *Sources) clusters(w http.ResponseWriter, r *http.Request) {
	if s.EnvoyClusters != nil && r.URL.Query().Get("format") == "json" {
		writeJSON(w, http.StatusOK, s.EnvoyClusters())
		return
	}
	writeNamed(w, r, s.Clusters, "cluster")
}

// configDump writes the configuration. With ?resource= it writes only that part of the resources
// that control planes sent.
func (s *Sources) configDump(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	part := query.Get("resource")
	var configs []any
	if s.Dump != nil {
		var err error
		if configs, err = s.Dump(part, query.Has("include_eds")); err != nil {
			writeError(w, http.StatusBadRequest, err.Error(), "omit ?resource= to show all resources")
			return
		}
	}
	if part != "" {
		if configs == nil {
			writeError(w, http.StatusNotFound, "no control plane is configured", "omit ?resource= to show all resources")
			return
		}
		writeJSON(w, http.StatusOK, map[string][]any{"configs": configs})
		return
	}
	c := s.Config()
	c.Configs = configs
	writeJSON(w, http.StatusOK, c)
}

func (s *Sources) overload(w http.ResponseWriter, _ *http.Request) {
	if status := s.Overload(); status != nil {
		writeJSON(w, http.StatusOK, status)
		return
	}
	writeError(w, http.StatusNotFound, "no overload manager is configured", "")
}

func (s *Sources) xds(w http.ResponseWriter, _ *http.Request) {
	if status := s.XDS(); status != nil {
		writeJSON(w, http.StatusOK, status)
		return
	}
	writeError(w, http.StatusNotFound, "no control plane is configured", "see docs/xds.md")
}

func (s *Sources) explain(w http.ResponseWriter, r *http.Request) {
	answer, err := s.Explain(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error(), "/explain?url=http://host/path, or weft explain")
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func serveHealthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"state": "alive"})
}

func writeNamed(w http.ResponseWriter, r *http.Request, source func(name string) any, kind string) {
	name := r.URL.Query().Get("name")
	found := source(name)
	if found == nil && name != "" {
		writeError(w, http.StatusNotFound, "there is no "+kind+" called "+name, "omit ?name= to list all")
		return
	}
	writeJSON(w, http.StatusOK, found)
}

type logLevel struct {
	Level string `json:"level"`
}

func (s *Sources) level(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, logLevel{s.Level()})
}

func (s *Sources) setLevel(w http.ResponseWriter, r *http.Request) {
	level := r.FormValue("level")
	if level == "" {
		writeError(w, http.StatusBadRequest, "the parameter level is missing", "/logging?level=debug")
		return
	}
	if err := s.SetLevel(level); err != nil {
		writeError(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	if s.Level != nil {
		level = s.Level()
	}
	writeJSON(w, http.StatusOK, logLevel{level})
}

func (s *Sources) drain(w http.ResponseWriter, _ *http.Request) {
	s.Drain()
	writeJSON(w, http.StatusAccepted, map[string]State{"state": Draining})
}

func (s *Sources) reload(w http.ResponseWriter, r *http.Request) {
	result, err := s.Reload(r.Context())
	status := http.StatusOK
	switch {
	case err != nil:
		writeError(w, http.StatusServiceUnavailable, err.Error(), "")
		return
	case !result.Applied:
		status = http.StatusUnprocessableEntity
	}
	writeJSON(w, status, result)
}

func servePprof(w http.ResponseWriter, r *http.Request) {
	switch chi.URLParam(r, "*") {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	default:
		pprof.Index(w, r) // the index, or the profile that the path names
	}
}
