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

func newHTTPClient(c *HTTPService, r *rules, clusters filter.ClusterClient) *httpClient {
	return &httpClient{c, r, clusters}
}

// check implements authClient. It sends the method and the authority of x, the path prefix followed
// by the path of x, the headers that the rules select, and sentBody. For an RPC request, the method
// is POST and the authority is the name of the cluster.
func (c *httpClient) check(ctx context.Context, x *protocol.Exchange, sentBody []byte, partial bool) (d decision, err error) {
	authExchange := newCheckExchange(x, c.config.Server.Timeout)
	authExchange.Meta.Protocol, authExchange.Meta.Version = string(config.HTTP1), "HTTP/1.1"
	r := &authExchange.Request
	r.Method, r.Scheme, r.Authority = x.Request.Method, "http", x.OriginalAuthority()
	path := x.OriginalPath()
	if r.Method == "" { // an RPC request, whose names may contain any character
		r.Method, r.Authority = "POST", c.config.Server.Cluster
		path = (&url.URL{Path: path}).EscapedPath()
	}
	if !strings.HasPrefix(path, "/") { // OPTIONS *
		path = "/" + path
	}
	r.Path = c.config.PathPrefix + path
	for name, value := range x.Request.Header.All() {
		if c.rules.sendsHeader(name) && isToken(name) && isFieldValue(value) && !isFraming(name) { // attachments may have any name and value
			r.Header.Add(name, value)
		}
	}
	c.rules.mutation.Apply(x, &r.Header)
	r.ContentLength = int64(len(sentBody))
	if len(sentBody) > 0 {
		r.Body = protocol.NewStringBody(string(sentBody))
	}
	if c.rules.body != nil {
		r.Header.Set(partialBody, strconv.FormatBool(partial))
	}
	err = c.clusters.Call(ctx, filter.Target{Cluster: c.config.Server.Cluster, Protocol: config.HTTP1, Timeout: c.config.Server.Timeout}, authExchange, func() error {
		d, err = c.parseResponse(&authExchange.Response, x.Request.Method == "")
		return err
	})
	return d, err
}

// sendsHeader reports whether the service receives the header.
func (r *rules) sendsHeader(name string) bool {
	if r.unsentHeaders.matches(name) || protocol.EqualFold(name, partialBody) { // only Weft sets partialBody
		return false
	}
	return r.allHeaders || r.sentHeaders.matches(name) || protocol.EqualFold(name, authorization)
}

// newCheckExchange returns an exchange with the service. The exchange ends after timeout, at x's
// deadline, or when x's client disconnects.
func newCheckExchange(x *protocol.Exchange, timeout time.Duration) *protocol.Exchange {
	authExchange := new(protocol.Exchange)
	authExchange.Reset()
	authExchange.Meta.Conn, authExchange.Meta.Start = new(protocol.ConnMeta), time.Now()
	authExchange.Deadline = deadlineFor(x, timeout)
	authExchange.Downstream = filter.DisconnectWatcher(x)
	return authExchange
}

// parseResponse converts a response of the service to a decision.
func (c *httpClient) parseResponse(r *protocol.Response, rpc bool) (d decision, err error) {
	if r.Status < 200 || r.Status >= 500 || r.Tunnel != nil {
		return decision{}, fmt.Errorf("unexpected response status %d", r.Status)
	}
	if d.allowed = r.Status == 200; !d.allowed {
		d.status = r.Status
		if d.body, err = readBody(r.Body); err != nil {
			return decision{}, err
		}
		d.response = c.selectHeaders(r, func(name string) bool {
			return c.rules.allClientHeaders || c.rules.clientHeaders.matches(name) || protocol.EqualFold(name, "Location") || protocol.EqualFold(name, "WWW-Authenticate")
		})
		return d, d.response.validate(false)
	}
	if _, err = readBody(r.Body); err != nil { // so that the connection can be reused
		return decision{}, err
	}
	d.request = removals(&r.Header)
	d.request = append(d.request, c.selectHeaders(r, c.rules.upstreamHeaders.matches)...)
	for _, ch := range c.selectHeaders(r, c.rules.appendedHeaders.matches) {
		d.request = append(d.request, change{opAdd, ch.name, ch.value})
	}
	d.response = c.selectHeaders(r, c.rules.successHeaders.matches)
	for name, value := range r.Header.All() {
		if c.rules.metadataHeaders.matches(name) {
			d.metadata = append(d.metadata, metadataValue{[]string{strings.Clone(strings.ToLower(name))}, strings.Clone(value)})
		}
	}
	return d, errors.Join(d.request.validate(rpc), d.response.validate(false))
}

// removals returns changes that remove the request headers that a response lists in removeHeaders.
func removals(h *protocol.Header) (list changes) {
	for name, value := range h.All() {
		if !protocol.EqualFold(name, removeHeaders) {
			continue
		}
		for member := range strings.SplitSeq(value, ",") {
			if member = strings.Trim(member, " \t"); member != "" {
				list = append(list, change{op: opRemove, name: strings.Clone(member)})
			}
		}
	}
	return list
}

// selectHeaders returns the selected headers of a response, as changes that replace headers of the
// same name.
func (c *httpClient) selectHeaders(r *protocol.Response, selected func(name string) bool) (list changes) {
	for name, value := range r.Header.All() {
		if isFraming(name) || protocol.EqualFold(name, removeHeaders) || !selected(name) {
			continue
		}
		ch := change{opSet, strings.Clone(name), strings.Clone(value)}
		for i := range list {
			if protocol.EqualFold(list[i].name, ch.name) {
				ch.op = opAdd // the response repeats the header
			}
		}
		list = append(list, ch)
	}
	return list
}

// readBody reads a body of at most maxResponseBody bytes.
func readBody(body protocol.Body) (string, error) {
	if body == nil {
		return "", nil
	}
	content, err := io.ReadAll(io.LimitReader(body, maxResponseBody+1))
	if err == nil && len(content) > maxResponseBody {
		err = errors.New("the response body is larger than 1 MiB")
	}
	return string(content), err
}
