package proxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/router/chainmatch"
)

// chainSelector is the handler of a listener of which connections take different filter
// chains. It outlives configurations: connections that have not begun by the time of a
// change choose among what is new.
type chainSelector struct{ now atomic.Pointer[chainSet] }

// chainSet is what there is to choose among. Immutable.
type chainSet struct {
	matcher *chainmatch.Matcher // of all but the default chain
	chains  []*compiledChain    // behind the matcher's may stand the default one
	matches int                 // how many the matcher knows
	how     config.Inspection
	timeout time.Duration      // until a connection has shown what the matcher asks for; 0: defaultInspectTimeout
	shaken  *handshakeRecorder // nil: none of the chains speaks TLS
}

// defaultInspectTimeout is how long connections may take to show what they are if the
// configuration does not say.
const defaultInspectTimeout = 15 * time.Second

// errNoChain: none of a listener's filter chains is for a connection.
var errNoChain = errors.New("no filter chain is for the connection")

// ServeConn is network.Handler's. If connections to this address are told apart by what
// they begin with, it waits until that is there.
func (c *chainSelector) ServeConn(ctx context.Context, conn *network.Conn) error {
	now, known := c.now.Load(), connection(conn)
	if now.asks(&known) == 0 {
		return c.dispatch(ctx, conn, false)
	}
	if !now.how.Forever {
		timeout := now.timeout
		if timeout == 0 {
			timeout = defaultInspectTimeout
		}
		conn.SetReadDeadline(time.Now().Add(timeout))
		if now.how.GoOn { // a connection that is parked ends when its time is over
			if err := awaitFirstBytes(conn); err != nil {
				return err
			}
			return c.dispatch(ctx, conn, true)
		}
	}
	conn.Handler = (*inspector)(c)
	return network.ErrPark
}

// awaitFirstBytes waits until conn has begun, or its time is over. Until then it may end, with
// an error.
func awaitFirstBytes(conn *network.Conn) error {
	err := conn.SetIdle(true)
	if err == nil {
		err = conn.AwaitReadable()
	}
	_ = conn.SetIdle(false) // never fails
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		conn.CloseReason = network.CloseReasonOf(err)
		return err
	}
	return nil
}

// asks returns what must be known of the first bytes of a connection, and makes known
// what is taken for granted.
func (c *chainSet) asks(known *chainmatch.Connection) chainmatch.Needs {
	asks := c.matcher.Asks(known)
	if asks&chainmatch.AskTLS != 0 && within(c.how.NoTLS, known.Destination.Port()) {
		known.Transport = config.RawBuffer
		asks &^= chainmatch.AskTLS
	}
	if asks&chainmatch.AskHTTP != 0 && within(c.how.NoHTTP, known.Destination.Port()) {
		asks &^= chainmatch.AskHTTP
	}
	return asks
}

func within(ranges []config.PortRange, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r config.PortRange) bool { return r.First <= port && port <= r.Last })
}

// inspector is the handler of the connections that the chooser waits for.
type inspector chainSelector

// ServeConn is network.Handler's: the connection has begun.
func (i *inspector) ServeConn(ctx context.Context, conn *network.Conn) error {
	return (*chainSelector)(i).dispatch(ctx, conn, true)
}

// dispatch hands conn to the chain that is for it. begun says that its first bytes are there,
// or that they need not be waited for; they are read as far as the choice asks for them,
// and given back. A connection that no chain is for ends with CauseNoChain.
func (c *chainSelector) dispatch(ctx context.Context, conn *network.Conn, begun bool) error {
	for {
		now, known, speaks := c.now.Load(), connection(conn), begun
		if asks := now.asks(&known); asks != 0 {
			if !begun {
				return c.ServeConn(ctx, conn) // the choice has changed just now
			}
			var err error
			if speaks, err = now.inspect(conn, asks, &known); err != nil {
				return err
			}
		}
		chosen := now.choose(&known)
		if chosen == nil {
			conn.CloseReason = network.ClosedNoFilterChain
			return refusal(&known)
		}
		if conn.JoinGroup(chosen.group) {
			return serve(ctx, conn, chosen.handler, speaks)
		}
		// It has been replaced meanwhile.
	}
}

// choose returns the chain for what is known; nil: there is none.
func (c *chainSet) choose(known *chainmatch.Connection) *compiledChain {
	if at := c.matcher.Match(known); at >= 0 {
		return c.chains[at]
	}
	if len(c.chains) > c.matches {
		return c.chains[c.matches]
	}
	return nil
}

// serve lets h serve conn for good. begun says that there is something to read.
func serve(ctx context.Context, conn *network.Conn, h network.Handler, begun bool) error {
	conn.SetReadDeadline(time.Time{})
	conn.Handler = h
	p, ok := h.(network.ClientFirstHandler)
	if !ok || begun {
		return h.ServeConn(ctx, conn)
	}
	if d := p.IdleTimeout(); d > 0 {
		conn.SetReadDeadline(time.Now().Add(d))
	}
	return network.ErrPark
}

// refusal says what was known of a connection that no chain is for.
func refusal(known *chainmatch.Connection) error {
	text := fmt.Sprintf("from %s to %s", known.Source, known.Destination)
	if known.Transport == config.TransportTLS {
		text += fmt.Sprintf(", TLS for %q", known.ServerName)
	}
	if len(known.Protocols) > 0 {
		text += fmt.Sprintf(", protocols %q", known.Protocols)
	}
	return fmt.Errorf("%w: %s", errNoChain, text)
}

// connection returns what is known of conn before it has begun.
func connection(conn *network.Conn) chainmatch.Connection {
	peer, _ := conn.DirectRemoteAddr()
	return chainmatch.Connection{
		Destination: unmapped(addrPort(conn.LocalAddr())), Source: unmapped(addrPort(conn.RemoteAddr())),
		Peer: unmapped(addrPort(peer)).Addr(),
	}
}
