package configjson

import "github.com/weft-proxy/weft/pkg/config/document"

// socketJSON contains the socket keys of a cluster.
type socketJSON struct {
	BindConfig  bindConfigJSON        `key:"upstream_bind_config" doc:"Source address of connections to the hosts."`
	Connections connectionOptionsJSON `key:"upstream_connection_options" doc:"Options of the connections to the hosts."`
}

type bindConfigJSON struct {
	Node   document.Node `key:"."`
	Source document.Node `key:"source_address" doc:"Source IP address of connections to the hosts: \"10.0.0.5\", {\"address\": \"10.0.0.5\", \"port_value\": 0}, or a list of one IPv4 and one IPv6 address. For hosts of the other family the system chooses." accept:"string|object|list" example:"\"10.0.0.5\""`
}

// sourceJSON is the object form of a source address.
type sourceJSON struct {
	Node    document.Node `key:"."`
	Address string        `key:"address" doc:"Source IP address." required:"true" example:"\"10.0.0.5\""`
	Port    int           `key:"port_value" doc:"Source port. 0: any. With a fixed port only one connection to each host address is possible: set max_connections of circuit_breakers to 1." min:"0" max:"65535" default:"0" example:"0"`
}

type connectionOptionsJSON struct {
	KeepAlive *tcpKeepAliveJSON `key:"tcp_keepalive" doc:"TCP keepalive of idle connections; {}: with the system's values. Absent: 9 probes after 15 s, 15 s apart."`
}

type tcpKeepAliveJSON struct {
	Probes   int `key:"keepalive_probes" doc:"Unanswered probes after which the connection is closed. Absent: the system's value." unit:"probes" min:"1" max:"127" example:"3"`
	Time     int `key:"keepalive_time" doc:"Idle time before the first probe. Absent: the system's value." unit:"seconds" min:"1" max:"32767" example:"60"`
	Interval int `key:"keepalive_interval" doc:"Time between two probes. Absent: the system's value." unit:"seconds" min:"1" max:"32767" example:"10"`
}
