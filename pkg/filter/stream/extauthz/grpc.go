package extauthz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// checkPath is the path of the gRPC method.
const checkPath = "/envoy.service.auth.v3.Authorization/Check"

// grpcClient queries the service over gRPC. It is immutable.
type grpcClient struct {
	rules                      *rules
	clusters                   filter.ClusterClient
	cluster, authority         string
	timeout                    time.Duration
	extensions                 [][2]string
	rawBody                    bool // send the body as bytes, not as text
	sendsCertificate, sendsSNI bool // whether checks contain the client's certificate and its SNI
}

func newGRPCClient(c *Config, r *rules, clusters filter.ClusterClient) *grpcClient {
	client := &grpcClient{
		rules: r, clusters: clusters, cluster: c.GRPC.Cluster, timeout: c.GRPC.Timeout,
		rawBody: r.body != nil && r.body.Raw, sendsCertificate: c.IncludeCertificate, sendsSNI: c.IncludeTLSSession,
	}
	if e := c.GRPC.Envoy; e != nil {
		client.cluster, client.authority = e.Cluster, e.Authority
	}
	if client.authority == "" {
		client.authority = client.cluster
	}
	for key, value := range r.context {
		client.extensions = append(client.extensions, [2]string{toValidUTF8(key), toValidUTF8(value)})
	}
	return client
}

// typeGRPC is the media type of gRPC. prefixLen is the size of the prefix of a message: the
// compressed flag and the length.
const (
	typeGRPC  = "application/grpc"
	prefixLen = 5
)

// check implements authClient.
func (c *grpcClient) check(ctx context.Context, x *protocol.Exchange, sentBody []byte, partial bool) (d decision, err error) {
	authExchange := newCheckExchange(x, c.timeout)
	authExchange.Meta.Protocol, authExchange.Meta.Version = string(config.HTTP2), "HTTP/2"
	r := &authExchange.Request
	r.Method, r.Scheme, r.Authority, r.Path = "POST", "http", c.authority, checkPath
	r.Header.Add("content-type", typeGRPC)
	r.Header.Add("te", "trailers")
	r.Header.Add("grpc-timeout", strconv.FormatInt(max(time.Until(authExchange.Deadline).Milliseconds(), 1), 10)+"m")
	c.rules.mutation.Apply(x, &r.Header)
	b := appendCheckRequest(make([]byte, prefixLen), c.attributes(x, sentBody, partial))
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefixLen)) // does not overflow: headers and max_request_bytes are bounded
	r.Body, r.ContentLength = protocol.NewStringBody(string(b)), -1
	err = c.clusters.Call(ctx, filter.Target{Cluster: c.cluster, Protocol: config.HTTP2, Timeout: c.timeout}, authExchange, func() error {
		response, err := readMessage(&authExchange.Response)
		if err != nil {
			return err
		}
		d, err = toDecision(response, x.Request.Method == "")
		return err
	})
	return d, err
}

// readMessage parses the only message of a response.
func readMessage(r *protocol.Response) (*checkResponse, error) {
	body, err := readBody(r.Body)
	if err != nil {
		return nil, err
	}
	if code := protocol.GRPCStatus(r); r.Status != 200 || code != 0 {
		return nil, fmt.Errorf("unexpected response: HTTP status %d, grpc-status %d: %s", r.Status, code, r.Trailer.Get("grpc-message")+r.Header.Get("grpc-message"))
	}
	if len(body) < prefixLen || body[0] != 0 || int(binary.BigEndian.Uint32([]byte(body[1:prefixLen]))) != len(body)-prefixLen {
		return nil, errors.New("the response is not a single gRPC message")
	}
	return parseCheckResponse([]byte(body[prefixLen:]))
}

// toDecision converts a response to a decision. It returns an error for a response that reports a
// failure, contradicts itself, has an invalid status, or requests an unsupported change.
func toDecision(r *checkResponse, rpc bool) (d decision, err error) {
	if r.hasErrorResponse || r.code == 0 && r.denied != nil {
		return decision{}, fmt.Errorf("the response is a failure or contradicts itself: %s", r.message)
	}
	d.metadata = r.metadata
	if d.allowed = r.code == 0; !d.allowed {
		d.status = 403
		if denied := r.denied; denied != nil {
			if denied.status != 0 {
				d.status = denied.status
			}
			d.body = denied.body
			d.response = toChanges(denied.headers, opSet)
		}
		if d.status < 200 || d.status > 599 {
			return decision{}, fmt.Errorf("the response asks for the invalid status %d", d.status)
		}
		return d, d.response.validate(false)
	}
	if o := r.ok; o != nil {
		if o.changesQuery {
			return decision{}, errors.New("the response changes the query, which is not supported")
		}
		for _, name := range o.remove {
			d.request = append(d.request, change{op: opRemove, name: name})
		}
		d.request = append(d.request, toChanges(o.requestHeaders, opSet)...)
		d.response = toChanges(o.responseHeaders, opAdd)
	}
	return d, errors.Join(d.request.validate(rpc), d.response.validate(false))
}

// toChanges converts options to changes. An option without an operation gets defaultOp.
func toChanges(options []option, defaultOp operation) (list changes) {
	for _, o := range options {
		ch := change{defaultOp, o.name, o.value}
		switch {
		case o.append != nil && *o.append:
			ch.op = opAdd
		case o.append != nil, o.action == 2:
			ch.op = opSet
		case o.action == 1:
			ch.op = opAddIfAbsent
		case o.action == 3:
			ch.op = opSetIfPresent
		}
		list = append(list, ch)
	}
	return list
}

// attributes returns the attributes of x that the service receives.
func (c *grpcClient) attributes(x *protocol.Exchange, sentBody []byte, partial bool) *attributes {
	a := &attributes{time: x.Meta.Start, extensions: c.extensions}
	if conn := x.Meta.Conn; conn != nil {
		if conn.Remote.IsValid() {
			a.source.address, a.source.port = conn.Remote.Addr().String(), conn.Remote.Port()
		}
		if conn.Local.IsValid() {
			a.destination.address, a.destination.port = conn.Local.Addr().String(), conn.Local.Port()
		}
		c.addTLS(a, conn.TLS)
	}
	r := &x.Request
	a.http = httpRequest{
		method: toValidUTF8(r.Method), path: toValidUTF8(x.OriginalPath()), host: toValidUTF8(x.OriginalAuthority()), scheme: toValidUTF8(r.Scheme),
		protocol: x.Meta.Version, size: r.ContentLength, body: sentBody, raw: c.rawBody,
	}
	if !c.rawBody {
		a.http.body = []byte(toValidUTF8(string(sentBody)))
	}
	if r.Method != "" {
		for _, pseudoHeader := range [...][2]string{{":authority", a.http.host}, {":method", a.http.method}, {":path", a.http.path}, {":scheme", a.http.scheme}} {
			if c.rules.sendsHeader(pseudoHeader[0]) {
				a.http.headers = append(a.http.headers, pseudoHeader)
			}
		}
	}
	indexes := make(map[string]int)
	for name, value := range r.Header.All() {
		if !c.rules.sendsHeader(name) {
			continue
		}
		name, value = strings.ToLower(toValidUTF8(name)), toValidUTF8(value)
		if i, ok := indexes[name]; ok {
			a.http.headers[i][1] += "," + value
			continue
		}
		indexes[name] = len(a.http.headers)
		a.http.headers = append(a.http.headers, [2]string{name, value})
	}
	if c.rules.body != nil {
		a.http.headers = append(a.http.headers, [2]string{strings.ToLower(partialBody), strconv.FormatBool(partial)})
	}
	return a
}

// addTLS adds the TLS attributes. t may be nil.
func (c *grpcClient) addTLS(a *attributes, t *protocol.TLS) {
	if t == nil {
		return
	}
	if c.sendsSNI {
		a.serverName = toValidUTF8(t.ServerName)
	}
	peer := t.Peer
	switch {
	case peer == nil:
		return
	case len(peer.URISANs) > 0:
		a.source.principal = toValidUTF8(peer.URISANs[0])
	case len(peer.DNSSANs) > 0:
		a.source.principal = toValidUTF8(peer.DNSSANs[0])
	default:
		a.source.principal = toValidUTF8(peer.Subject)
	}
	if c.sendsCertificate {
		a.source.certificate = peer.EscapedPEM(false)
	}
}

// toValidUTF8 returns text as valid UTF-8, which Protocol Buffers require for strings.
func toValidUTF8(text string) string { return strings.ToValidUTF8(text, "!") }
