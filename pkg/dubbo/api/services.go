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
	if unescaped, err := url.PathUnescape(key); err == nil {
		key = unescaped
	}
	status := o.Services()
	status.Published = slices.DeleteFunc(slices.Clone(status.Published), func(p dubbo.PublishedStatus) bool { return p.Key != key })
	status.Subscribed = slices.DeleteFunc(slices.Clone(status.Subscribed), func(s dubbo.ReferenceStatus) bool { return s.Key != key })
	if len(status.Published)+len(status.Subscribed) == 0 {
		writeResponse(w, http.StatusNotFound, failure, "service "+quoted(key)+" is not published or subscribed: GET /services lists all services")
		return
	}
	writeJSON(w, http.StatusOK, status)
}
