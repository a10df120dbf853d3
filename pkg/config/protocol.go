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
