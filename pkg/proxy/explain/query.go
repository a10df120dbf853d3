package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Query is a hypothetical request.
type Query struct {
	Listener    string         // name of the listener; "": Destination selects it
	Destination netip.AddrPort // destination of the connection; invalid address or port 0: unknown
	Source      netip.AddrPort // source of the connection; invalid: unknown
	TLS         bool           // the connection begins with a TLS handshake
	ServerName  string         // server name (SNI) of the handshake
	ALPN        []string       // protocols that the client offers, or its protocol in plaintext

	Protocol  config.Protocol // HTTP1 and HTTP2 are equivalent here
	Method    string
	Scheme    string
	Authority string
	Path      string
	Headers   []protocol.Field
}

// Query parameters of a Query in a URL.
const (
	KeyURL         = "url"      // of an HTTP request
	KeyCall        = "call"     // "service/method" of an RPC request; excludes url
	KeyMethod      = "method"   // default GET
	KeyHeader      = "header"   // "name:value", any number
	KeyProtocol    = "protocol" // of an RPC request, as configuration names it; default dubbo
	KeyGroup       = "group"
	KeyVersion     = "version"
	KeyAttachment  = "attachment" // "name=value", any number
	KeyListener    = "listener"
	KeyDestination = "to"   // "ip:port" of the connection
	KeySource      = "from" // "ip:port" or "ip" of the connection
	KeyServerName  = "sni"  // default: the host of an https URL
	KeyALPN        = "alpn" // separated by commas
)

// keys lists the parameters that Parse accepts.
func keys() []string {
	return []string{
		KeyURL, KeyCall, KeyMethod, KeyHeader, KeyProtocol, KeyGroup, KeyVersion, KeyAttachment,
		KeyListener, KeyDestination, KeySource, KeyServerName, KeyALPN,
	}
}

// Parse parses a Query. Its errors name the parameter.
func Parse(v url.Values) (*Query, error) {
	for key := range v {
		if !slices.Contains(keys(), key) {
			return nil, fmt.Errorf("unknown parameter %q, expected one of %s", key, strings.Join(keys(), ", "))
		}
	}
	q := &Query{Listener: v.Get(KeyListener), ServerName: strings.ToLower(v.Get(KeyServerName))}
	if list := v.Get(KeyALPN); list != "" {
		q.ALPN = strings.Split(list, ",")
	}
	var err error
	switch {
	case v.Get(KeyURL) != "" && v.Get(KeyCall) != "":
		return nil, errors.New("url and call are mutually exclusive")
	case v.Get(KeyURL) != "":
		err = q.parseHTTP(v)
	case v.Get(KeyCall) != "":
		err = q.parseCall(v)
	default:
		return nil, errors.New("url or call is required")
	}
	if err != nil {
		return nil, err
	}
	return q, q.parseAddresses(v)
}

// parseHTTP parses a query about an HTTP request.
func (q *Query) parseHTTP(v url.Values) error {
	u, err := url.Parse(v.Get(KeyURL))
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("url: %q is not valid, expected http://host/path or https://host/path", v.Get(KeyURL))
	}
	q.Protocol, q.Method = config.HTTP1, cmp.Or(v.Get(KeyMethod), "GET")
	q.Scheme, q.Authority, q.Path = u.Scheme, u.Host, u.RequestURI()
	q.TLS = u.Scheme == "https"
	port := uint16(80)
	if q.TLS {
		port = 443
		q.ServerName = cmp.Or(q.ServerName, strings.ToLower(u.Hostname()))
	}
	if text := u.Port(); text != "" {
		addr, err := netip.ParseAddrPort("0.0.0.0:" + text)
		if err != nil {
			return fmt.Errorf("url: %q is not a valid port", text)
		}
		port = addr.Port()
	}
	ip, _ := netip.ParseAddr(u.Hostname()) // fails for a name
	q.Destination = netip.AddrPortFrom(ip, port)
	if len(q.ALPN) == 0 {
		q.ALPN = []string{config.PlainHTTP11}
		if q.TLS {
			q.ALPN = []string{"h2", "http/1.1"}
		}
	}
	for _, field := range v[KeyHeader] {
		name, value, ok := strings.Cut(field, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || name == "":
			return fmt.Errorf("header: %q is not valid, expected name:value", field)
		case strings.EqualFold(name, "host"):
			q.Authority = value
		default:
			q.Headers = append(q.Headers, protocol.Field{Name: name, Value: value})
		}
	}
	return nil
}

// parseCall parses a query about an RPC request and sets the headers that codecs set.
func (q *Query) parseCall(v url.Values) error {
	slash := strings.LastIndexByte(v.Get(KeyCall), '/')
	if slash <= 0 || slash == len(v.Get(KeyCall))-1 {
		return fmt.Errorf("call: %q is not valid, expected service/method", v.Get(KeyCall))
	}
	service, method := v.Get(KeyCall)[:slash], v.Get(KeyCall)[slash+1:]
	q.Protocol = config.Protocol(cmp.Or(v.Get(KeyProtocol), string(config.Dubbo)))
	q.Scheme, q.Authority, q.Path = "http", service, "/"+service+"/"+method
	q.Headers = []protocol.Field{{Name: xprotocol.FieldService, Value: service}, {Name: xprotocol.FieldMethod, Value: method}}
	for _, f := range []protocol.Field{{Name: xprotocol.FieldVersion, Value: v.Get(KeyVersion)}, {Name: xprotocol.FieldGroup, Value: v.Get(KeyGroup)}} {
		if f.Value != "" {
			q.Headers = append(q.Headers, f)
		}
	}
	for _, attachment := range v[KeyAttachment] {
		name, value, ok := strings.Cut(attachment, "=")
		if !ok || name == "" {
			return fmt.Errorf("attachment: %q is not valid, expected name=value", attachment)
		}
		q.Headers = append(q.Headers, protocol.Field{Name: name, Value: value})
	}
	return nil
}

// parseAddresses parses the destination and the source of the connection.
func (q *Query) parseAddresses(v url.Values) error {
	if text := v.Get(KeyDestination); text != "" {
		dst, err := netip.ParseAddrPort(text)
		if err != nil {
			return fmt.Errorf("to: %q is not valid, expected ip:port", text)
		}
		q.Destination = dst
	}
	text := v.Get(KeySource)
	if text == "" {
		return nil
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		q.Source = netip.AddrPortFrom(ip, 0)
		return nil
	}
	src, err := netip.ParseAddrPort(text)
	if err != nil {
		return fmt.Errorf("from: %q is not valid, expected ip or ip:port", text)
	}
	q.Source = src
	return nil
}

// String returns the request in one line.
func (q *Query) String() string {
	if isHTTP(q.Protocol) {
		return q.Method + " " + q.Scheme + "://" + q.Authority + q.Path
	}
	return string(q.Protocol) + " call of " + strings.TrimPrefix(q.Path, "/")
}

func isHTTP(p config.Protocol) bool { return p == config.HTTP1 || p == config.HTTP2 }

// newExchange returns the exchange that an engine would create for protocol p on the listener.
func (q *Query) newExchange(p config.Protocol, listener string) *protocol.Exchange {
	x := &protocol.Exchange{}
	x.Reset()
	x.Meta.Protocol = string(p)
	x.Meta.Conn = &protocol.ConnMeta{Listener: listener, Local: q.Destination, Remote: q.Source, Secure: q.TLS}
	if q.Source.IsValid() {
		x.Meta.Conn.RemoteText, x.Meta.Conn.RemoteIP = q.Source.String(), q.Source.Addr().String()
	}
	x.Request.Method, x.Request.Scheme, x.Request.Authority, x.Request.Path = q.Method, q.Scheme, q.Authority, q.Path
	for _, f := range q.Headers {
		x.Request.Header.Add(f.Name, f.Value)
	}
	x.Request.Header.MarkUnchanged()
	return x
}
