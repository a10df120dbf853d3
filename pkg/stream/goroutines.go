package stream

import (
	"log/slog"
	"sync"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Goroutines are the goroutines that the connections of an engine start. A panic ends only the
// goroutine in which it occurs. Set Log before the first use.
type Goroutines struct {
	Log     *slog.Logger // for recovered panics
	running sync.WaitGroup
}

// Start runs f on a new goroutine. Other goroutines must not depend on work that f skips when it
// panics.
func (g *Goroutines) Start(f func()) {
	g.running.Go(func() {
		defer g.Contain("serving a connection")
		f()
	})
}

// Contain recovers and logs a panic. Functions whose panic must not end their goroutine defer it.
func (g *Goroutines) Contain(operation string) {
	if p := recover(); p != nil {
		g.LogPanic(operation, p)
	}
}

// LogPanic logs a recovered panic. The deferred function that recovers the panic calls it, so that
// the log contains the stack of the panic.
func (g *Goroutines) LogPanic(operation string, value any) {
	protocol.NewPanic(value).Log(g.Log, operation)
}

// Wait waits for the goroutines. The engine calls it when only these goroutines still call Start.
func (g *Goroutines) Wait() { g.running.Wait() }
