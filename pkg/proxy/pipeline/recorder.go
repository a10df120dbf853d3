package pipeline

import (
	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/proxy/accesslog"
	"github.com/weft-proxy/weft/pkg/proxy/service"
)

// Recorder records the exchanges of one filter chain: it updates the metrics of their scopes,
// writes access logs and calls observers.
type Recorder struct {
	listener *metrics.Listener
	rpc      *metrics.RPC
	release  func()
	logs     []exchangeLog

	observers []Observer // observers of filters
}

// Observer is called for each exchange that has ended; see filter.Env.
type Observer func(x *protocol.Exchange)

// exchangeLog is an access log: *accesslog.Log.
type exchangeLog interface {
	Observe(x *protocol.Exchange)
	Close()
}

// NewRecorder opens the access logs of a listener and returns a recorder for one of its filter
// chains. observers are called for each exchange that has ended. The owner calls Close.
func NewRecorder(l *config.Listener, logs *logfile.Set, registry *metrics.Registry, observers []Observer) (*Recorder, error) {
	r := &Recorder{rpc: registry.RPC(), observers: observers}
	for _, c := range l.AccessLogs {
		log, err := accesslog.Open(c, logs)
		if err != nil {
			r.closeLogs()
			return nil, err
		}
		r.logs = append(r.logs, log)
	}
	r.listener, r.release = registry.Listener(l.Name)
	return r, nil
}

// observe records x after the last byte of its response.
func (r *Recorder) observe(x *protocol.Exchange) {
	key := r.keyOf(x)
	b := metrics.Batch{Outcome: key.outcome}
	b.AddRequest(requestMetrics(x))
	r.add(&key, b)
	r.write(x)
}

// add adds b to the metrics of the scopes in key.
func (r *Recorder) add(key *recordKey, b metrics.Batch) {
	r.listener.Add(b)
	for _, scope := range &key.scopes {
		if recorder, ok := scope.(metrics.Recorder); ok {
			recorder.Add(b)
		}
	}
}

// write writes x to the access logs and calls the observers of filters.
func (r *Recorder) write(x *protocol.Exchange) {
	for _, log := range r.logs {
		log.Observe(x)
	}
	for _, observe := range r.observers {
		observe(x)
	}
}

// Close releases the metrics and closes the access logs.
func (r *Recorder) Close() {
	r.release()
	r.closeLogs()
}

func (r *Recorder) closeLogs() {
	for _, log := range r.logs {
		log.Close()
	}
}

// recordKey identifies exchanges with the same metrics: their scopes, apart from the listener, and
// their outcome. equal compares all fields.
type recordKey struct {
	scopes  [4]protocol.Named // method, route, cluster and host of the last attempt; nil: unknown
	outcome metrics.Outcome
}

// equal reports whether *k == *other, without the function calls that == makes for an array of
// interfaces. It compares the host first, because that differs most often.
func (k *recordKey) equal(other *recordKey) bool {
	for i := len(k.scopes) - 1; i >= 0; i-- {
		if k.scopes[i] != other.scopes[i] {
			return false
		}
	}
	return k.outcome == other.outcome
}

// keyOf returns the key of x.
func (r *Recorder) keyOf(x *protocol.Exchange) recordKey {
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

// setMethod sets the method scope of an RPC request, gRPC included. It runs before routing, while
// the method is still the one that the client sent. For an exchange that never started, it runs
// when the exchange is recorded.
func (r *Recorder) setMethod(x *protocol.Exchange) {
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
func (m *methodScope) Name() string { return (*metrics.Method)(m).Name() }

// Add implements metrics.Recorder.
func (m *methodScope) Add(b metrics.Batch) { (*metrics.Method)(m).Add(b) }

// grpcScope is the scope of a gRPC method; see protocol.GRPCStatus for the status of its responses.
type grpcScope metrics.Method

// Name implements protocol.Named.
func (g *grpcScope) Name() string { return (*metrics.Method)(g).Name() }

// Add implements metrics.Recorder.
func (g *grpcScope) Add(b metrics.Batch) { (*metrics.Method)(g).Add(b) }
