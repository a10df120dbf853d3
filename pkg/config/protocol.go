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

// CarriedBy reports whether requests of protocol p can be sent in protocol
// upstream: as themselves, and HTTP/1.1 and HTTP/2 as one another. RPC is not
// translated. "" and Auto stand for the caller's protocol, Bolt for both versions.
func (p Protocol) CarriedBy(upstream Protocol) bool {
	return upstream == "" || upstream == Auto || upstream.Accepts(p) || p.isHTTP() && upstream.isHTTP()
}

// Accepts reports whether peers configured to speak p take messages of protocol other.
// Bolt means both versions, as in MOSN: a connection speaks the version of its first
// frame. BoltV2 means version 2 alone.
func (p Protocol) Accepts(other Protocol) bool {
	return p == other || p == Bolt && other == BoltV2
}

// SentIn returns the protocol in which a request of protocol p goes to hosts configured to
// speak upstream: p itself if they accept it, or if upstream is "" or Auto.
func (p Protocol) SentIn(upstream Protocol) Protocol {
	if upstream == "" || upstream == Auto || upstream.Accepts(p) {
		return p
	}
	return upstream
}

func (p Protocol) isHTTP() bool { return p == HTTP1 || p == HTTP2 }
