package proxy

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/router"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// record accounts for the exchanges of one listener: metrics of every place
// that they passed, of the RPC methods that they call, and access logs.
type record struct {
	listener *metrics.Listener
	rpc      *metrics.RPC
	release  func()
	logs     []*AccessLog
}

func (b *builder) record(l *config.Listener) (*record, error) {
	r := &record{rpc: b.server.o.Metrics.RPC()}
	for _, c := range l.AccessLogs {
		log, err := NewAccessLog(c, b.server.o.Logs)
		if err != nil {
			r.closeLogs()
			return nil, err
		}
		r.logs = append(r.logs, log)
	}
	r.listener, r.release = b.server.o.Metrics.Listener(l.Name)
	return r, nil
}

// observe accounts for x after the last byte of its answer.
func (r *record) observe(x *protocol.Exchange) {
	r.listener.Observe(sample(x))
	rec := &x.Record
	if rec.Method == nil {
		r.name(x)
	}
	if rec.Method != nil {
		rec.Method.Observe(x)
	}
	if rec.Route != nil {
		rec.Route.Observe(x)
	}
	if rec.Cluster != nil {
		rec.Cluster.Observe(x)
	}
	if h := rec.Host(); h != nil {
		h.Observe(x)
	}
	for _, log := range r.logs {
		log.Observe(x)
	}
}

func (r *record) close() {
	r.release()
	r.closeLogs()
}

func (r *record) closeLogs() {
	for _, log := range r.logs {
		log.Close()
	}
}

// sample is what metrics keep of x.
func sample(x *protocol.Exchange) metrics.Sample {
	return metrics.Sample{
		Protocol: x.Meta.Protocol,
		Reason:   uint8(x.Record.Reason),
		Status:   x.Response.Status,
		Duration: x.Record.End.Sub(x.Meta.Start),
		BytesIn:  x.Record.RequestBytes,
		BytesOut: x.Record.ResponseBytes,
	}
}

// name notes which method an RPC request calls that has not been routed yet: while
// it is what its caller says, and has been read just now. gRPC is RPC, too; of all
// other HTTP hardly anything is looked at.
func (r *record) name(x *protocol.Exchange) {
	switch {
	case x.Request.Path == "": // a head that could not be read
	case x.Request.Method == "":
		h := &x.Request.Header
		x.Record.Method = (*methodPlace)(r.rpc.Method(h.Get(xprotocol.FieldService), h.Get(xprotocol.FieldMethod)))
	case isGRPC(x):
		x.Record.Method = (*grpcPlace)(r.rpc.Method(protocol.GRPCMethod(x.Request.Path)))
	}
}

// isGRPC reports whether x is a call of gRPC, which is carried by POST over HTTP/2.
// That costs other requests next to nothing.
func isGRPC(x *protocol.Exchange) bool {
	return x.Request.Method == "POST" && x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header)
}

// methodPlace is an RPC method as the record knows it.
type methodPlace metrics.Method

// Name is protocol.Place's.
func (p *methodPlace) Name() string { return (*metrics.Method)(p).Name() }

// Observe is protocol.Place's.
func (p *methodPlace) Observe(x *protocol.Exchange) {
	(*metrics.Method)(p).Observe(call(x, x.Response.Code))
}

// grpcPlace is a method of gRPC, whose answers say their status in fields.
type grpcPlace metrics.Method

// Name is protocol.Place's.
func (p *grpcPlace) Name() string { return (*metrics.Method)(p).Name() }

// Observe is protocol.Place's.
func (p *grpcPlace) Observe(x *protocol.Exchange) {
	(*metrics.Method)(p).Observe(call(x, protocol.GRPCStatus(&x.Response)))
}

// call is what a method keeps of x.
func call(x *protocol.Exchange, code int) metrics.Call {
	return metrics.Call{
		Code:     code,
		Reason:   uint8(x.Record.Reason),
		Duration: x.Record.End.Sub(x.Meta.Start),
	}
}

// routePlace is a route as the record knows it.
type routePlace struct {
	route  *router.Route
	routes *metrics.Routes
}

// Name is protocol.Place's.
func (p *routePlace) Name() string { return p.route.Config.Name }

// Observe is protocol.Place's.
func (p *routePlace) Observe(x *protocol.Exchange) { p.routes.Observe(p.route.Index, sample(x)) }

// Meter opens the accounts of clusters and hosts in a metrics registry. It is
// an upstream.Meter.
type Meter struct{ Registry *metrics.Registry }

// Cluster is upstream.Meter's.
func (m Meter) Cluster(name string, inFlight func() int64) upstream.ClusterAccount {
	c, release := m.Registry.Cluster(name)
	c.Active.Follow(inFlight)
	return clusterAccount{c, release}
}

// Host is upstream.Meter's.
func (m Meter) Host(cluster, address string) upstream.Account {
	h, release := m.Registry.Host(cluster, address)
	return hostAccount{h, release}
}

type hostAccount struct {
	*metrics.Requests
	release func()
}

func (a hostAccount) Observe(x *protocol.Exchange) { a.Requests.Observe(sample(x)) }
func (a hostAccount) Close()                       { a.release() }

type clusterAccount struct {
	cluster *metrics.Cluster
	release func()
}

func (a clusterAccount) Close() { a.release() }

func (a clusterAccount) Observe(x *protocol.Exchange) {
	a.cluster.Observe(sample(x))
	if n := len(x.Record.Attempts); n > 1 {
		a.cluster.Retries.Add(uint64(n - 1))
	}
}

// Count is upstream.ClusterAccount's.
func (a clusterAccount) Count(e upstream.Event) {
	c := a.cluster
	switch e {
	case upstream.ConnectionOpened:
		c.Opened.Add(1)
	case upstream.ConnectionClosed:
		c.Closed.Add(1)
	case upstream.ConnectFailed:
		c.ConnectFailures.Add(1)
	case upstream.ConnectionOverflow:
		c.Overflow[metrics.LimitConnections].Add(1)
	case upstream.PendingOverflow:
		c.Overflow[metrics.LimitPending].Add(1)
	case upstream.RequestOverflow:
		c.Overflow[metrics.LimitRequests].Add(1)
	case upstream.RetryOverflow:
		c.Overflow[metrics.LimitRetries].Add(1)
	case upstream.Resent:
		c.Resent.Add(1)
	case upstream.HostDown:
		c.HostDown.Add(1)
	case upstream.HostUp:
		c.HostUp.Add(1)
	}
}
