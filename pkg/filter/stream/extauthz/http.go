package extauthz

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// mostAnswer is the maximum size, in bytes, of the body of a response.
const mostAnswer = 1 << 20

// Headers of the authorization protocol, named as in Envoy.
const (
	authorization = "Authorization"
	partialBody   = "X-Envoy-Auth-Partial-Body"
	removeHeaders = "X-Envoy-Auth-Headers-To-Remove"
)

// httpService asks the service over HTTP/1.1. It is immutable.
type httpService struct {
	config *HTTPService
	rules  *rules
	calls  filter.ClusterClient
}

func newHTTPService(c *HTTPService, r *rules, calls filter.ClusterClient) *httpService {
	return &httpService{c, r, calls}
}

// ask implements service. It sends the request's method, authority and path after the path prefix,
// with those of its headers that the rules select.
func (s *httpService) ask(ctx context.Context, x *protocol.Exchange, told []byte, partial bool) (v verdict, err error) {
	q := question(x, s.config.Server.Timeout)
	q.Meta.Protocol, q.Meta.Version = string(config.HTTP1), "HTTP/1.1"
	r := &q.Request
	r.Method, r.Scheme, r.Authority = x.Request.Method, "http", x.OriginalAuthority()
	path := x.OriginalPath()
	if r.Method == "" { // an RPC request, whose names may contain any character
		r.Method, r.Authority = "POST", s.config.Server.Cluster
		path = (&url.URL{Path: path}).EscapedPath()
	}
	if !strings.HasPrefix(path, "/") { // OPTIONS *
		path = "/" + path
	}
	r.Path = s.config.PathPrefix + path
	for name, value := range x.Request.Header.All() {
		if s.rules.sends(name) && isName(name) && isValue(value) && !isFraming(name) { // attachments may be anything
			r.Header.Add(name, value)
		}
	}
	s.rules.set.Apply(x, &r.Header)
	r.ContentLength = int64(len(told))
	if len(told) > 0 {
		r.Body = protocol.NewStringBody(string(told))
	}
	if s.rules.body != nil {
		r.Header.Set(partialBody, strconv.FormatBool(partial))
	}
	err = s.calls.Call(ctx, filter.Target{Cluster: s.config.Server.Cluster, Protocol: config.HTTP1}, q, func() error {
		v, err = s.read(&q.Response, x.Request.Method == "")
		return err
	})
	return v, err
}

// sends reports whether the service receives the header.
func (r *rules) sends(name string) bool {
	if r.unsentHeaders.fit(name) || protocol.EqualFold(name, partialBody) { // only Weft sets partialBody
		return false
	}
	return r.all || r.sentHeaders.fit(name) || protocol.EqualFold(name, authorization)
}

// question returns an exchange for the service. It ends after timeout, at x's deadline, or when x's
// client disconnects.
func question(x *protocol.Exchange, timeout time.Duration) *protocol.Exchange {
	q := new(protocol.Exchange)
	q.Reset()
	q.Meta.Conn, q.Meta.Start = new(protocol.ConnMeta), time.Now()
	q.Deadline = until(x, timeout)
	q.Caller = filter.DisconnectWatcher(x)
	return q
}

// read converts a response of the service to a verdict.
func (s *httpService) read(r *protocol.Response, rpc bool) (v verdict, err error) {
	if r.Status < 200 || r.Status >= 500 || r.Tunnel != nil {
		return verdict{}, fmt.Errorf("unexpected response status %d", r.Status)
	}
	if v.allowed = r.Status == 200; !v.allowed {
		v.status = r.Status
		if v.body, err = content(r.Body); err != nil {
			return verdict{}, err
		}
		v.response = s.take(r, func(name string) bool {
			return s.rules.whole || s.rules.refused.fit(name) || protocol.EqualFold(name, "Location") || protocol.EqualFold(name, "WWW-Authenticate")
		})
		return v, v.response.fit(false)
	}
	if _, err = content(r.Body); err != nil { // so that the connection can be reused
		return verdict{}, err
	}
	v.request = removals(&r.Header)
	v.request = append(v.request, s.take(r, s.rules.replace.fit)...)
	for _, c := range s.take(r, s.rules.add.fit) {
		v.request = append(v.request, change{add, c.name, c.value})
	}
	v.response = s.take(r, s.rules.success.fit)
	for name, value := range r.Header.All() {
		if s.rules.tags.fit(name) {
			v.data = append(v.data, datum{[]string{strings.ToLower(name)}, strings.Clone(value)})
		}
	}
	return v, errors.Join(v.request.fit(rpc), v.response.fit(false))
}

// removals returns the removals of request headers that a response lists.
func removals(h *protocol.Header) (c changes) {
	for name, value := range h.All() {
		if !protocol.EqualFold(name, removeHeaders) {
			continue
		}
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.Trim(one, " \t"); one != "" {
				c = append(c, change{how: remove, name: strings.Clone(one)})
			}
		}
	}
	return c
}

// take returns the wanted headers of a response, as changes that replace headers of the same name.
func (s *httpService) take(r *protocol.Response, wanted func(name string) bool) (c changes) {
	for name, value := range r.Header.All() {
		if isFraming(name) || protocol.EqualFold(name, removeHeaders) || !wanted(name) {
			continue
		}
		one := change{set, strings.Clone(name), strings.Clone(value)}
		for i := range c {
			if protocol.EqualFold(c[i].name, one.name) {
				one.how = add // the response repeats the header
			}
		}
		c = append(c, one)
	}
	return c
}

// content reads a body of at most mostAnswer bytes.
func content(body protocol.Body) (string, error) {
	if body == nil {
		return "", nil
	}
	text, err := io.ReadAll(io.LimitReader(body, mostAnswer+1))
	if err == nil && len(text) > mostAnswer {
		err = errors.New("the response body is larger than 1 MiB")
	}
	return string(text), err
}
