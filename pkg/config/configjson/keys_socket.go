package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

// socketJSON contains the socket keys of a cluster.
type socketJSON struct {
	BindConfig  bindConfigJSON        `key:"upstream_bind_config" doc:"Where connections to the hosts come from."`
	Connections connectionOptionsJSON `key:"upstream_connection_options" doc:"Options of the connections to the hosts."`
}

type bindConfigJSON struct {
	Node   document.Node `key:"."`
	Source document.Node `key:"source_address" doc:"IP address of this machine that connections to the hosts come from: \"10.0.0.5\", {\"address\": \"10.0.0.5\", \"port_value\": 0}, or a list of one of IPv4 and one of IPv6. Hosts of the other family: as the system chooses." accept:"string|object|list" example:"\"10.0.0.5\""`
}

// sourceJSON is the object form of a source address.
type sourceJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"The IP address." required:"true" example:"\"10.0.0.5\""`
	Port    int           `key:"port_value" doc:"The port; 0: any. With one there can be a single connection to each address of a host: circuit_breakers should say max_connections 1." min:"0" max:"65535" default:"0" example:"0"`
}

type connectionOptionsJSON struct {
	KeepAlive *tcpKeepAliveJSON `key:"tcp_keepalive" doc:"When a host that is silent is asked by TCP whether it lives; {}: as the system does. Absent: after 15 s, nine times, 15 s apart."`
}

type tcpKeepAliveJSON struct {
	Probes   int `key:"keepalive_probes" doc:"Probes without an answer after which the connection is given up; absent: the system's." unit:"probes" min:"1" max:"127" example:"3"`
	Time     int `key:"keepalive_time" doc:"Silence before the first probe; absent: the system's." unit:"seconds" min:"1" max:"32767" example:"60"`
	Interval int `key:"keepalive_interval" doc:"Between two probes; absent: the system's." unit:"seconds" min:"1" max:"32767" example:"10"`
}
