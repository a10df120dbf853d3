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

// grpcService asks the service over gRPC. It is immutable.
type grpcService struct {
	rules              *rules
	calls              filter.ClusterClient
	cluster, authority string
	timeout            time.Duration
	extensions         [][2]string
	raw                bool // send the body as bytes, not as text
	certificate, name  bool // send the client's certificate; send its SNI
}

func newGRPCService(c *Config, r *rules, calls filter.ClusterClient) *grpcService {
	s := &grpcService{
		rules: r, calls: calls, cluster: c.GRPC.Cluster, timeout: c.GRPC.Timeout,
		raw: r.body != nil && r.body.Raw, certificate: c.Certificate, name: c.Session,
	}
	if e := c.GRPC.Envoy; e != nil {
		s.cluster, s.authority = e.Cluster, e.Authority
	}
	if s.authority == "" {
		s.authority = s.cluster
	}
	for key, value := range r.context {
		s.extensions = append(s.extensions, [2]string{clean(key), clean(value)})
	}
	return s
}

// typeGRPC is the media type of gRPC. prefixLen is the size of the prefix of a message: the
// compressed flag and the length.
const (
	typeGRPC  = "application/grpc"
	prefixLen = 5
)

// ask implements service.
func (s *grpcService) ask(ctx context.Context, x *protocol.Exchange, told []byte, partial bool) (v verdict, err error) {
	q := question(x, s.timeout)
	q.Meta.Protocol, q.Meta.Version = string(config.HTTP2), "HTTP/2"
	r := &q.Request
	r.Method, r.Scheme, r.Authority, r.Path = "POST", "http", s.authority, checkPath
	r.Header.Add("content-type", typeGRPC)
	r.Header.Add("te", "trailers")
	r.Header.Add("grpc-timeout", strconv.FormatInt(max(time.Until(q.Deadline).Milliseconds(), 1), 10)+"m")
	s.rules.set.Apply(x, &r.Header)
	b := appendCheckRequest(make([]byte, prefixLen), s.attributes(x, told, partial))
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefixLen)) // headers and max_request_bytes are bounded
	r.Body, r.ContentLength = protocol.NewStringBody(string(b)), -1
	err = s.calls.Call(ctx, filter.Target{Cluster: s.cluster, Protocol: config.HTTP2}, q, func() error {
		answer, err := message(&q.Response)
		if err != nil {
			return err
		}
		v, err = judged(answer, x.Request.Method == "")
		return err
	})
	return v, err
}

// message parses the only message of a response.
func message(r *protocol.Response) (*checkResponse, error) {
	text, err := content(r.Body)
	if err != nil {
		return nil, err
	}
	if code := protocol.GRPCStatus(r); r.Status != 200 || code != 0 {
		return nil, fmt.Errorf("unexpected response: HTTP status %d, grpc-status %d: %s", r.Status, code, r.Trailer.Get("grpc-message")+r.Header.Get("grpc-message"))
	}
	if len(text) < prefixLen || text[0] != 0 || int(binary.BigEndian.Uint32([]byte(text[1:prefixLen]))) != len(text)-prefixLen {
		return nil, errors.New("the response is not a single gRPC message")
	}
	return parseCheckResponse([]byte(text[prefixLen:]))
}

// judged converts a response to a verdict. A response that contradicts itself, or that asks for an
// unsupported change, is an error.
func judged(r *checkResponse, rpc bool) (v verdict, err error) {
	if r.failed || r.code == 0 && r.denied != nil {
		return verdict{}, fmt.Errorf("the response is a failure or contradicts itself: %s", r.message)
	}
	v.data = r.data
	if v.allowed = r.code == 0; !v.allowed {
		v.status = 403
		if d := r.denied; d != nil {
			if d.status != 0 {
				v.status = d.status
			}
			v.body = d.body
			v.response = changed(d.headers, set)
		}
		if v.status < 200 || v.status > 599 {
			return verdict{}, fmt.Errorf("the response asks for the invalid status %d", v.status)
		}
		return v, v.response.fit(false)
	}
	if o := r.ok; o != nil {
		if o.query {
			return verdict{}, errors.New("the response changes the query, which is not supported")
		}
		for _, name := range o.remove {
			v.request = append(v.request, change{how: remove, name: name})
		}
		v.request = append(v.request, changed(o.headers, set)...)
		v.response = changed(o.response, add)
	}
	return v, errors.Join(v.request.fit(rpc), v.response.fit(false))
}

// changed converts options to changes; plain is the operation of an option that names none.
func changed(options []option, plain operation) (c changes) {
	for _, o := range options {
		one := change{plain, o.name, o.value}
		switch {
		case o.append != nil && *o.append:
			one.how = add
		case o.append != nil, o.action == 2:
			one.how = set
		case o.action == 1:
			one.how = addIfAbsent
		case o.action == 3:
			one.how = setIfPresent
		}
		c = append(c, one)
	}
	return c
}

// attributes returns the attributes of x that the service receives.
func (s *grpcService) attributes(x *protocol.Exchange, told []byte, partial bool) *attributes {
	a := &attributes{time: x.Meta.Start, extensions: s.extensions}
	if conn := x.Meta.Conn; conn != nil {
		if conn.Remote.IsValid() {
			a.source.address, a.source.port = conn.Remote.Addr().String(), conn.Remote.Port()
		}
		if conn.Local.IsValid() {
			a.destination.address, a.destination.port = conn.Local.Addr().String(), conn.Local.Port()
		}
		s.secured(a, conn.TLS)
	}
	r := &x.Request
	a.http = httpRequest{
		method: clean(r.Method), path: clean(x.OriginalPath()), host: clean(x.OriginalAuthority()), scheme: clean(r.Scheme),
		protocol: x.Meta.Version, size: r.ContentLength, body: told, raw: s.raw,
	}
	if !s.raw {
		a.http.body = []byte(clean(string(told)))
	}
	if r.Method != "" {
		for _, own := range [...][2]string{{":authority", a.http.host}, {":method", a.http.method}, {":path", a.http.path}, {":scheme", a.http.scheme}} {
			if s.rules.sends(own[0]) {
				a.http.headers = append(a.http.headers, own)
			}
		}
	}
	at := make(map[string]int)
	for name, value := range r.Header.All() {
		if !s.rules.sends(name) {
			continue
		}
		name, value = strings.ToLower(clean(name)), clean(value)
		if i, ok := at[name]; ok {
			a.http.headers[i][1] += "," + value
			continue
		}
		at[name] = len(a.http.headers)
		a.http.headers = append(a.http.headers, [2]string{name, value})
	}
	if s.rules.body != nil {
		a.http.headers = append(a.http.headers, [2]string{strings.ToLower(partialBody), strconv.FormatBool(partial)})
	}
	return a
}

// secured adds the TLS attributes. t may be nil.
func (s *grpcService) secured(a *attributes, t *protocol.TLS) {
	if t == nil {
		return
	}
	if s.name {
		a.serverName = clean(t.ServerName)
	}
	peer := t.Peer
	switch {
	case peer == nil:
		return
	case len(peer.URISANs) > 0:
		a.source.principal = clean(peer.URISANs[0])
	case len(peer.DNSSANs) > 0:
		a.source.principal = clean(peer.DNSSANs[0])
	default:
		a.source.principal = clean(peer.Subject)
	}
	if s.certificate {
		a.source.certificate = peer.EscapedPEM(false)
	}
}

// clean returns text as valid UTF-8, which Protocol Buffers require for strings.
func clean(text string) string { return strings.ToValidUTF8(text, "!") }
