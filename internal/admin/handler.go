package admin

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// Endpoint is one endpoint of the admin port.
type Endpoint struct {
	Method string // "GET", "POST", "PUT"
	// Path may contain an example of the query. A path that ends with "/" includes all paths below
	// it.
	Path       string
	Doc        string           // one sentence, for the index
	Handler    http.HandlerFunc // nil: the endpoint does not exist
	Parameters []Parameter      // of the query, for /help
}

// Route returns Path without its query.
func (e Endpoint) Route() string {
	route, _, _ := strings.Cut(e.Path, "?")
	return route
}

// NewHandler returns the handler of an admin port. It serves the endpoints of o and an index of
// them, and rejects the requests that newGuard does not allow.
func NewHandler(o Options) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		WriteError(w, http.StatusNotFound, "page not found", "/ lists all pages")
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		for _, method := range []string{"GET", "POST", "PUT"} {
			if r.Match(chi.NewRouteContext(), method, req.URL.Path) {
				w.Header().Add("Allow", method) // RFC 9110 15.5.6
			}
		}
		WriteError(w, http.StatusMethodNotAllowed, "this page does not support the method "+req.Method, "/ lists all pages")
	})
	var endpoints []Endpoint
	for _, e := range o.Endpoints {
		if e.Handler == nil {
			continue
		}
		endpoints = append(endpoints, e)
		route := e.Route()
		if strings.HasSuffix(route, "/") {
			route += "*"
		}
		r.Method(e.Method, route, e.Handler)
	}
	r.Get("/", index(endpoints))
	return newGuard(o.Hosts, r)
}

// PprofPath is the path of the profiles.
const PprofPath = "/debug/pprof/"

// ServePprof serves the profiles at PprofPath, for go tool pprof.
func ServePprof(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, PprofPath) {
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
