package xprotocol

import (
	"slices"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/stream"
)

// batch collects the work of a reader between two waits for input: the time of the last read, the
// write queues to flush and the exchanges to record. The reader goroutine and the fibers that run
// on it own the batch. UpstreamConn.expire has a batch of its own.
type batch struct {
	now       time.Time
	dirty     stream.WriteBatch
	observers []serverObserver // the last used one is the first
}

// serverObserver is the observer for the exchanges of one listener that end in a batch.
type serverObserver struct {
	server   *server
	observer stream.BatchObserver
}

// maxObservers is the maximum number of observers that a batch keeps after a flush. Those of
// listeners without further exchanges would otherwise accumulate.
const maxObservers = 4

// observe passes x to the observer of s, which records x in flush at the latest.
func (b *batch) observe(s *server, x *protocol.Exchange) { b.observer(s).Observe(x) }

// observer returns the observer for exchanges of s.
func (b *batch) observer(s *server) stream.BatchObserver {
	if len(b.observers) > 0 && b.observers[0].server == s {
		return b.observers[0].observer
	}
	i := slices.IndexFunc(b.observers, func(o serverObserver) bool { return o.server == s })
	if i < 0 {
		i = len(b.observers)
		b.observers = append(b.observers, serverObserver{s, s.opts.NewBatchObserver()})
	}
	b.observers[0], b.observers[i] = b.observers[i], b.observers[0]
	return b.observers[0].observer
}

// flush records the observed exchanges. A panic is logged and has no other effect.
func (o *serverObserver) flush() {
	defer o.server.engine.goroutines.Contain("recording requests")
	o.observer.Flush()
}

// flush records the exchanges and flushes the write queues. If a connection is lost, its reader
// gets the error.
func (b *batch) flush() {
	for i := range b.observers {
		b.observers[i].flush()
	}
	if len(b.observers) > maxObservers {
		clear(b.observers[maxObservers:])
		b.observers = b.observers[:maxObservers]
	}
	b.dirty.Flush()
}
