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
	sendsCertificate, sendsSNI bool // send the client's certificate; send its SNI
}

func newGRPCClient(c *Config, r *rules, calls filter.ClusterClient) *grpcClient {
	s := &grpcClient{
		rules: r, clusters: calls, cluster: c.GRPC.Cluster, timeout: c.GRPC.Timeout,
		rawBody: r.body != nil && r.body.Raw, sendsCertificate: c.Certificate, sendsSNI: c.Session,
	}
	if e := c.GRPC.Envoy; e != nil {
		s.cluster, s.authority = e.Cluster, e.Authority
	}
	if s.authority == "" {
		s.authority = s.cluster
	}
	for key, value := range r.context {
		s.extensions = append(s.extensions, [2]string{toValidUTF8(key), toValidUTF8(value)})
	}
	return s
}

// typeGRPC is the media type of gRPC. prefixLen is the size of the prefix of a message: the
// compressed flag and the length.
const (
	typeGRPC  = "application/grpc"
	prefixLen = 5
)

// check implements service.
func (s *grpcClient) check(ctx context.Context, x *protocol.Exchange, sent []byte, partial bool) (v decision, err error) {
	q := newCheckExchange(x, s.timeout)
	q.Meta.Protocol, q.Meta.Version = string(config.HTTP2), "HTTP/2"
	r := &q.Request
	r.Method, r.Scheme, r.Authority, r.Path = "POST", "http", s.authority, checkPath
	r.Header.Add("content-type", typeGRPC)
	r.Header.Add("te", "trailers")
	r.Header.Add("grpc-timeout", strconv.FormatInt(max(time.Until(q.Deadline).Milliseconds(), 1), 10)+"m")
	s.rules.mutation.Apply(x, &r.Header)
	b := appendCheckRequest(make([]byte, prefixLen), s.attributes(x, sent, partial))
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefixLen)) // headers and max_request_bytes are bounded
	r.Body, r.ContentLength = protocol.NewStringBody(string(b)), -1
	err = s.clusters.Call(ctx, filter.Target{Cluster: s.cluster, Protocol: config.HTTP2}, q, func() error {
		response, err := readMessage(&q.Response)
		if err != nil {
			return err
		}
		v, err = toDecision(response, x.Request.Method == "")
		return err
	})
	return v, err
}

// readMessage parses the only message of a response.
func readMessage(r *protocol.Response) (*checkResponse, error) {
	text, err := readBody(r.Body)
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

// toDecision converts a response to a decision. A response that contradicts itself, or that
// requests an unsupported change, is an error.
func toDecision(r *checkResponse, rpc bool) (v decision, err error) {
	if r.hasErrorResponse || r.code == 0 && r.denied != nil {
		return decision{}, fmt.Errorf("the response is a failure or contradicts itself: %s", r.message)
	}
	v.metadata = r.metadata
	if v.allowed = r.code == 0; !v.allowed {
		v.status = 403
		if d := r.denied; d != nil {
			if d.status != 0 {
				v.status = d.status
			}
			v.body = d.body
			v.response = toChanges(d.headers, opSet)
		}
		if v.status < 200 || v.status > 599 {
			return decision{}, fmt.Errorf("the response asks for the invalid status %d", v.status)
		}
		return v, v.response.validate(false)
	}
	if o := r.ok; o != nil {
		if o.changesQuery {
			return decision{}, errors.New("the response changes the query, which is not supported")
		}
		for _, name := range o.remove {
			v.request = append(v.request, change{op: opRemove, name: name})
		}
		v.request = append(v.request, toChanges(o.headers, opSet)...)
		v.response = toChanges(o.response, opAdd)
	}
	return v, errors.Join(v.request.validate(rpc), v.response.validate(false))
}

// toChanges converts options to changes; plain is the operation of an option that names none.
func toChanges(options []option, plain operation) (c changes) {
	for _, o := range options {
		one := change{plain, o.name, o.value}
		switch {
		case o.append != nil && *o.append:
			one.op = opAdd
		case o.append != nil, o.action == 2:
			one.op = opSet
		case o.action == 1:
			one.op = opAddIfAbsent
		case o.action == 3:
			one.op = opSetIfPresent
		}
		c = append(c, one)
	}
	return c
}

// attributes returns the attributes of x that the service receives.
func (s *grpcClient) attributes(x *protocol.Exchange, sent []byte, partial bool) *attributes {
	a := &attributes{time: x.Meta.Start, extensions: s.extensions}
	if conn := x.Meta.Conn; conn != nil {
		if conn.Remote.IsValid() {
			a.source.address, a.source.port = conn.Remote.Addr().String(), conn.Remote.Port()
		}
		if conn.Local.IsValid() {
			a.destination.address, a.destination.port = conn.Local.Addr().String(), conn.Local.Port()
		}
		s.addTLS(a, conn.TLS)
	}
	r := &x.Request
	a.http = httpRequest{
		method: toValidUTF8(r.Method), path: toValidUTF8(x.OriginalPath()), host: toValidUTF8(x.OriginalAuthority()), scheme: toValidUTF8(r.Scheme),
		protocol: x.Meta.Version, size: r.ContentLength, body: sent, raw: s.rawBody,
	}
	if !s.rawBody {
		a.http.body = []byte(toValidUTF8(string(sent)))
	}
	if r.Method != "" {
		for _, own := range [...][2]string{{":authority", a.http.host}, {":method", a.http.method}, {":path", a.http.path}, {":scheme", a.http.scheme}} {
			if s.rules.sendsHeader(own[0]) {
				a.http.headers = append(a.http.headers, own)
			}
		}
	}
	at := make(map[string]int)
	for name, value := range r.Header.All() {
		if !s.rules.sendsHeader(name) {
			continue
		}
		name, value = strings.ToLower(toValidUTF8(name)), toValidUTF8(value)
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

// addTLS adds the TLS attributes. t may be nil.
func (s *grpcClient) addTLS(a *attributes, t *protocol.TLS) {
	if t == nil {
		return
	}
	if s.sendsSNI {
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
	if s.sendsCertificate {
		a.source.certificate = peer.EscapedPEM(false)
	}
}

// toValidUTF8 returns text as valid UTF-8, which Protocol Buffers require for strings.
func toValidUTF8(text string) string { return strings.ToValidUTF8(text, "!") }
