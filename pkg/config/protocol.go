package config

// Protocol is a wire protocol as config.json spells it.
type Protocol string

// The protocols that config.json can name.
const (
	HTTP1       Protocol = "Http1"
	HTTP2       Protocol = "Http2"
	Bolt        Protocol = "bolt"
	BoltV2      Protocol = "boltv2"
	Dubbo       Protocol = "dubbo"
	DubboThrift Protocol = "dubbo-thrift"
	Tars        Protocol = "tars"
	Auto        Protocol = "Auto"
)

// HTTPByALPN is a protocol of hosts only: HTTP/2 or HTTP/1.1, as each host chooses by ALPN. A host
// that chooses none gets HTTP/1.1. config.json has no name for it.
const HTTPByALPN Protocol = "HTTP by ALPN"

// CanSendAs reports whether requests of protocol p can be sent in protocol upstream: unchanged, or
// translated between HTTP/1.1 and HTTP/2. RPC protocols are not translated. The upstream protocols
// "" and Auto stand for p. Bolt stands for both versions.
func (p Protocol) CanSendAs(upstream Protocol) bool {
	return upstream == "" || upstream == Auto || upstream.Accepts(p) || p.isHTTP() && upstream.isHTTP()
}

// Accepts reports whether a host that is configured with protocol p accepts messages of protocol
// other. Bolt means both versions, as in MOSN: a connection uses the version of its first frame.
// BoltV2 means version 2 only.
func (p Protocol) Accepts(other Protocol) bool {
	return p == other || p == Bolt && other == BoltV2
}

// UpstreamProtocol returns the protocol in which a request of protocol p goes to hosts of protocol
// upstream: p itself if they accept it, or if upstream is "" or Auto.
func (p Protocol) UpstreamProtocol(upstream Protocol) Protocol {
	if upstream == "" || upstream == Auto || upstream.Accepts(p) {
		return p
	}
	return upstream
}

func (p Protocol) isHTTP() bool { return p == HTTP1 || p == HTTP2 || p == HTTPByALPN }
