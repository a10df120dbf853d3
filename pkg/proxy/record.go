package proxy

import (
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/proxy/service"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// recorder accounts for the exchanges of one listener: it updates the metrics of every scope and
// RPC method, and writes access logs.
type recorder struct {
	listener *metrics.Listener
	rpc      *metrics.RPC
	release  func()
	logs     []*AccessLog

	observers []exchangeObserver // of filters
}

func (b *builder) newRecorder(l *config.Listener) (*recorder, error) {
	r := &recorder{rpc: b.server.o.Metrics.RPC()}
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

// observe accounts for x after the last byte of its response.
func (r *recorder) observe(x *protocol.Exchange) {
	w := r.keyOf(x)
	s := metrics.Batch{Outcome: w.outcome}
	s.AddRequest(requestMetrics(x))
	r.add(&w, s)
	r.write(x)
}

// add accounts for exchanges with the key w.
func (r *recorder) add(w *recordKey, s metrics.Batch) {
	r.listener.Add(s)
	for _, p := range &w.scopes {
		if a, ok := p.(metrics.Account); ok {
			a.Add(s)
		}
	}
}

// write writes x to the access logs and calls the observers of filters.
func (r *recorder) write(x *protocol.Exchange) {
	for _, log := range r.logs {
		log.Observe(x)
	}
	for _, f := range r.observers {
		f(x)
	}
}

func (r *recorder) close() {
	r.release()
	r.closeLogs()
}

func (r *recorder) closeLogs() {
	for _, log := range r.logs {
		log.Close()
	}
}

// recordKey is the scopes of an exchange apart from its listener, and its outcome. equal compares
// all fields.
type recordKey struct {
	scopes  [4]protocol.Named // method, route, cluster and host of the last attempt; nil: not known
	outcome metrics.Outcome
}

// equal is *w == *o, without the function calls that == takes for an array of interfaces.
// The host, which differs most often, comes first.
func (w *recordKey) equal(o *recordKey) bool {
	for i := len(w.scopes) - 1; i >= 0; i-- {
		if w.scopes[i] != o.scopes[i] {
			return false
		}
	}
	return w.outcome == o.outcome
}

// keyOf returns the key of x.
func (r *recorder) keyOf(x *protocol.Exchange) recordKey {
	rec := &x.Record
	if rec.Method == nil {
		r.setMethod(x)
	}
	code := x.Response.Code
	if _, ok := rec.Method.(*grpcScope); ok {
		code = protocol.GRPCStatus(&x.Response)
	}
	var last protocol.Attempt
	if n := len(rec.Attempts); n > 0 {
		last = rec.Attempts[n-1]
	}
	return recordKey{
		scopes: [...]protocol.Named{rec.Method, rec.Route, rec.Cluster, last.Host},
		outcome: metrics.Outcome{
			Protocol: x.Meta.Protocol, Reason: uint8(rec.Reason), Status: x.Response.Status, Code: code, UpstreamStatus: last.Status,
		},
	}
}

// requestMetrics returns the metrics of x apart from its outcome.
func requestMetrics(x *protocol.Exchange) metrics.Request {
	return metrics.Request{
		Duration: x.Record.End.Sub(x.Meta.Start),
		BytesIn:  x.Record.RequestBytes,
		BytesOut: x.Record.ResponseBytes,
		Attempts: len(x.Record.Attempts),
	}
}

// setMethod sets the method scope of an RPC request before routing, while the method is still the one
// that the client sent. gRPC counts as RPC; for other HTTP the check is cheap.
func (r *recorder) setMethod(x *protocol.Exchange) {
	switch {
	case x.Request.Path == "": // malformed head
	case x.Request.Method == "":
		h := &x.Request.Header
		x.Record.Method = (*methodScope)(r.rpc.Method(h.Get(xprotocol.FieldService), h.Get(xprotocol.FieldMethod)))
	case service.IsGRPC(x):
		x.Record.Method = (*grpcScope)(r.rpc.Method(protocol.GRPCMethod(x.Request.Path)))
	}
}

// methodScope is the scope of an RPC method.
type methodScope metrics.Method

// Name implements protocol.Named.
func (p *methodScope) Name() string { return (*metrics.Method)(p).Name() }

// Add implements metrics.Account.
func (p *methodScope) Add(s metrics.Batch) { (*metrics.Method)(p).Add(s) }

// grpcScope is the scope of a gRPC method, whose responses carry their status in header fields.
type grpcScope metrics.Method

// Name implements protocol.Named.
func (p *grpcScope) Name() string { return (*metrics.Method)(p).Name() }

// Add implements metrics.Account.
func (p *grpcScope) Add(s metrics.Batch) { (*metrics.Method)(p).Add(s) }

// Meter creates recorders of clusters and hosts in a metrics registry. It implements
// upstream.Meter.
type Meter struct{ Registry *metrics.Registry }

// Cluster implements upstream.Meter.
func (m Meter) Cluster(name string, levels upstream.Gauges) upstream.ClusterRecorder {
	c, release := m.Registry.Cluster(name)
	c.Active.SetFunc(levels.InFlight)
	c.LimitUsage.SetFunc(func(priority int, l metrics.Limit) (used, most int64) {
		return levels.LimitUsage(config.Priority(priority), l)
	})
	return clusterRecorder{c, release}
}

// Host implements upstream.Meter.
func (m Meter) Host(cluster, address string) upstream.Recorder {
	h, release := m.Registry.Host(cluster, address)
	return hostRecorder{h, release}
}

type hostRecorder struct {
	*metrics.RequestRecorder
	release func()
}

func (a hostRecorder) Close() { a.release() }

type clusterRecorder struct {
	cluster *metrics.Cluster
	release func()
}

func (a clusterRecorder) Close() { a.release() }

// Add implements metrics.Account.
func (a clusterRecorder) Add(s metrics.Batch) {
	a.cluster.Add(s)
	if n := s.Retries(); n > 0 {
		a.cluster.Retries.Add(uint64(n))
	}
}

// Count implements upstream.ClusterRecorder.
func (a clusterRecorder) Count(e upstream.Event) {
	c := a.cluster
	switch e {
	case upstream.ConnectionOpened:
		c.Opened.Add(1)
	case upstream.ConnectionClosed:
		c.Closed.Add(1)
	case upstream.ConnectionMaxRequests:
		c.MaxRequestsReached.Add(1)
	case upstream.ConnectFailed:
		c.ConnectFailures.Add(1)
	case upstream.Resent:
		c.Resent.Add(1)
	case upstream.HostDown:
		c.HostDown.Add(1)
	case upstream.HostUp:
		c.HostUp.Add(1)
	case upstream.CheckFailed:
		c.CheckFailures.Add(1)
	case upstream.HostEjected:
		c.Ejections.Add(1)
	case upstream.EjectionOverflow:
		c.EjectionOverflow.Add(1)
	case upstream.Hedged:
		c.Hedges.Add(1)
	case upstream.HedgeWon:
		c.HedgesWon.Add(1)
	case upstream.AttemptCancelled:
		c.Cancelled.Add(1)
	default: // an overflow, which LimitReached counts
	}
}

// LimitReached implements upstream.ClusterRecorder.
func (a clusterRecorder) LimitReached(p config.Priority, e upstream.Event) {
	of := &a.cluster.Overflow[p]
	switch e {
	case upstream.ConnectionOverflow:
		of[metrics.LimitConnections].Add(1)
	case upstream.PendingOverflow:
		of[metrics.LimitPending].Add(1)
	case upstream.RequestOverflow:
		of[metrics.LimitRequests].Add(1)
	case upstream.RetryOverflow:
		of[metrics.LimitRetries].Add(1)
	case upstream.BudgetOverflow:
		of[metrics.LimitRetryBudget].Add(1)
	default: // Count counts it
	}
}
