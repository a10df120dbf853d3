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
// translated. "" and Auto stand for the caller's protocol.
func (p Protocol) CarriedBy(upstream Protocol) bool {
	return upstream == "" || upstream == Auto || upstream == p || p.isHTTP() && upstream.isHTTP()
}

func (p Protocol) isHTTP() bool { return p == HTTP1 || p == HTTP2 }
