package api

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/go-chi/chi/v5"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

// services responds with all published and subscribed services.
func (o *Options) services(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, o.Services())
}

// service responds with the services of one key: group/interface:version.
func (o *Options) service(w http.ResponseWriter, r *http.Request) {
	key := chi.URLParam(r, "*")
	if plain, err := url.PathUnescape(key); err == nil {
		key = plain
	}
	all := o.Services()
	all.Published = slices.DeleteFunc(slices.Clone(all.Published), func(p dubbo.PublishedStatus) bool { return p.Key != key })
	all.Subscribed = slices.DeleteFunc(slices.Clone(all.Subscribed), func(s dubbo.ReferenceStatus) bool { return s.Key != key })
	if len(all.Published)+len(all.Subscribed) == 0 {
		writeResponse(w, http.StatusNotFound, failure, "service "+quoted(key)+" is not published or subscribed: GET /services lists all services")
		return
	}
	writeJSON(w, http.StatusOK, all)
}
