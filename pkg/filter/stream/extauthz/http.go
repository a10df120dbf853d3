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

// maxResponseBody is the maximum size, in bytes, of the body of a response.
const maxResponseBody = 1 << 20

// Headers of the authorization protocol, named as in Envoy.
const (
	authorization = "Authorization"
	partialBody   = "X-Envoy-Auth-Partial-Body"
	removeHeaders = "X-Envoy-Auth-Headers-To-Remove"
)

// httpClient queries the service over HTTP/1.1. It is immutable.
type httpClient struct {
	config   *HTTPService
	rules    *rules
	clusters filter.ClusterClient
}

func newHTTPClient(c *HTTPService, r *rules, calls filter.ClusterClient) *httpClient {
	return &httpClient{c, r, calls}
}

// check implements service. It sends the request's method, authority and path after the path
// prefix, with those of its headers that the rules select.
func (s *httpClient) check(ctx context.Context, x *protocol.Exchange, sent []byte, partial bool) (v decision, err error) {
	q := newCheckExchange(x, s.config.Server.Timeout)
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
		if s.rules.sendsHeader(name) && isToken(name) && isFieldValue(value) && !isFraming(name) { // attachments may be anything
			r.Header.Add(name, value)
		}
	}
	s.rules.mutation.Apply(x, &r.Header)
	r.ContentLength = int64(len(sent))
	if len(sent) > 0 {
		r.Body = protocol.NewStringBody(string(sent))
	}
	if s.rules.body != nil {
		r.Header.Set(partialBody, strconv.FormatBool(partial))
	}
	err = s.clusters.Call(ctx, filter.Target{Cluster: s.config.Server.Cluster, Protocol: config.HTTP1}, q, func() error {
		v, err = s.parseResponse(&q.Response, x.Request.Method == "")
		return err
	})
	return v, err
}

// sendsHeader reports whether the service receives the header.
func (r *rules) sendsHeader(name string) bool {
	if r.unsentHeaders.matches(name) || protocol.EqualFold(name, partialBody) { // only Weft sets partialBody
		return false
	}
	return r.allHeaders || r.sentHeaders.matches(name) || protocol.EqualFold(name, authorization)
}

// newCheckExchange returns an exchange for the service. It ends after timeout, at x's deadline, or
// when x's client disconnects.
func newCheckExchange(x *protocol.Exchange, timeout time.Duration) *protocol.Exchange {
	q := new(protocol.Exchange)
	q.Reset()
	q.Meta.Conn, q.Meta.Start = new(protocol.ConnMeta), time.Now()
	q.Deadline = deadlineFor(x, timeout)
	q.Downstream = filter.DisconnectWatcher(x)
	return q
}

// parseResponse converts a response of the service to a decision.
func (s *httpClient) parseResponse(r *protocol.Response, rpc bool) (v decision, err error) {
	if r.Status < 200 || r.Status >= 500 || r.Tunnel != nil {
		return decision{}, fmt.Errorf("unexpected response status %d", r.Status)
	}
	if v.allowed = r.Status == 200; !v.allowed {
		v.status = r.Status
		if v.body, err = readBody(r.Body); err != nil {
			return decision{}, err
		}
		v.response = s.selectHeaders(r, func(name string) bool {
			return s.rules.allClientHeaders || s.rules.clientHeaders.matches(name) || protocol.EqualFold(name, "Location") || protocol.EqualFold(name, "WWW-Authenticate")
		})
		return v, v.response.validate(false)
	}
	if _, err = readBody(r.Body); err != nil { // so that the connection can be reused
		return decision{}, err
	}
	v.request = removals(&r.Header)
	v.request = append(v.request, s.selectHeaders(r, s.rules.upstreamHeaders.matches)...)
	for _, c := range s.selectHeaders(r, s.rules.appendedHeaders.matches) {
		v.request = append(v.request, change{opAdd, c.name, c.value})
	}
	v.response = s.selectHeaders(r, s.rules.successHeaders.matches)
	for name, value := range r.Header.All() {
		if s.rules.metadataHeaders.matches(name) {
			v.metadata = append(v.metadata, metadataValue{[]string{strings.ToLower(name)}, strings.Clone(value)})
		}
	}
	return v, errors.Join(v.request.validate(rpc), v.response.validate(false))
}

// removals returns the removals of request headers that a response lists.
func removals(h *protocol.Header) (c changes) {
	for name, value := range h.All() {
		if !protocol.EqualFold(name, removeHeaders) {
			continue
		}
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.Trim(one, " \t"); one != "" {
				c = append(c, change{op: opRemove, name: strings.Clone(one)})
			}
		}
	}
	return c
}

// selectHeaders returns the wanted headers of a response, as changes that replace headers of the
// same name.
func (s *httpClient) selectHeaders(r *protocol.Response, wanted func(name string) bool) (c changes) {
	for name, value := range r.Header.All() {
		if isFraming(name) || protocol.EqualFold(name, removeHeaders) || !wanted(name) {
			continue
		}
		one := change{opSet, strings.Clone(name), strings.Clone(value)}
		for i := range c {
			if protocol.EqualFold(c[i].name, one.name) {
				one.op = opAdd // the response repeats the header
			}
		}
		c = append(c, one)
	}
	return c
}

// readBody reads a body of at most maxResponseBody bytes.
func readBody(body protocol.Body) (string, error) {
	if body == nil {
		return "", nil
	}
	text, err := io.ReadAll(io.LimitReader(body, maxResponseBody+1))
	if err == nil && len(text) > maxResponseBody {
		err = errors.New("the response body is larger than 1 MiB")
	}
	return string(text), err
}
