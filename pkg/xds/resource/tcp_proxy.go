package resource

import (
	"time"

	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

func (p fieldReader) readTCP(m *tcpv3.TcpProxy, l *Listener) *config.TCPProxy {
	p.checkFields(m, []string{"cluster", "idle_timeout", "access_log", "max_connect_attempts"},
		[]string{"weighted_clusters", "on_demand", "metadata_match", "tunneling_config"})
	if len(m.GetAccessLog()) > 0 && len(l.Config.AccessLogs) == 0 {
		l.Config.AccessLogs = p.field("access_log").readAccessLogs(m.GetAccessLog())
	}
	out := &config.TCPProxy{
		Cluster:            m.GetCluster(),
		IdleTimeout:        p.field("idle_timeout").readDuration(m.GetIdleTimeout(), time.Hour),
		MaxConnectAttempts: max(1, uint32Or(m.GetMaxConnectAttempts(), 1)),
	}
	if out.Cluster == "" {
		p.field("cluster").reject("is missing")
	}
	return out
}
