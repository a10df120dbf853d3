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

// chainSelector is the handler of a listener that chooses a filter chain for each connection; see
// compiledListener.selectsChain. It outlives configurations: for a connection that still waits when
// the configuration changes, it chooses among the new chains.
type chainSelector struct{ active atomic.Pointer[chainSet] }

// chainSet holds the chains to choose among. It is immutable once it is published.
type chainSet struct {
	matcher    *chainmatch.Matcher // matches all chains but the default one
	chains     []*compiledChain    // chains of matcher, then the default chain if there is one
	matchCount int                 // number of chains in matcher
	inspection config.Inspection
	timeout    time.Duration      // maximum wait for the bytes that the matcher needs; 0: defaultInspectTimeout
	handshakes *handshakeRecorder // nil: no chain uses TLS
}

// defaultInspectTimeout is how long a connection may take to send the bytes that the matcher needs
// if the configuration sets no timeout.
const defaultInspectTimeout = 15 * time.Second

// errNoChain reports that no filter chain matches a connection.
var errNoChain = errors.New("no matching filter chain")

// ServeConn implements network.Handler. If the choice depends on the first bytes of the connection,
// it waits for them.
func (c *chainSelector) ServeConn(ctx context.Context, conn *network.Conn) error {
	chains, props := c.active.Load(), connectionOf(conn)
	if chains.needs(&props) == 0 {
		return c.dispatch(ctx, conn, false)
	}
	if !chains.inspection.NoTimeout {
		timeout := chains.timeout
		if timeout == 0 {
			timeout = defaultInspectTimeout
		}
		conn.SetReadDeadline(time.Now().Add(timeout))
		if chains.inspection.ContinueOnTimeout { // wait here, because a parked connection closes at its deadline
			if err := awaitFirstBytes(conn); err != nil {
				return err
			}
			return c.dispatch(ctx, conn, true)
		}
	}
	conn.Handler = (*inspector)(c)
	return network.ErrPark
}

// awaitFirstBytes waits until conn has bytes to read or its deadline passes. It returns an error if
// conn closes or drains before that.
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

// needs returns the properties that the matcher needs from the first bytes of a connection. If the
// listener skips TLS inspection on the port, needs sets props.Transport to plaintext instead.
func (c *chainSet) needs(props *chainmatch.Connection) chainmatch.Needs {
	required := c.matcher.NeedsFor(props)
	if required&chainmatch.NeedTLS != 0 && inPortRanges(c.inspection.SkipTLSPorts, props.Destination.Port()) {
		props.Transport = config.RawBuffer
		required &^= chainmatch.NeedTLS
	}
	if required&chainmatch.NeedHTTP != 0 && inPortRanges(c.inspection.SkipHTTPPorts, props.Destination.Port()) {
		required &^= chainmatch.NeedHTTP
	}
	return required
}

func inPortRanges(ranges []config.PortRange, port uint16) bool {
	return slices.ContainsFunc(ranges, func(r config.PortRange) bool { return r.First <= port && port <= r.Last })
}

// inspector is the handler of connections whose first bytes chainSelector waits for.
type inspector chainSelector

// ServeConn implements network.Handler. The connection has bytes to read.
func (i *inspector) ServeConn(ctx context.Context, conn *network.Conn) error {
	return (*chainSelector)(i).dispatch(ctx, conn, true)
}

// dispatch passes conn to its chain. If hasData is true, the first bytes have arrived or the
// inspection has timed out. dispatch reads as many bytes as the choice needs and puts them back. It
// closes a connection without a chain with ClosedNoFilterChain.
func (c *chainSelector) dispatch(ctx context.Context, conn *network.Conn, hasData bool) error {
	for {
		chains, props, connHasData := c.active.Load(), connectionOf(conn), hasData
		if needs := chains.needs(&props); needs != 0 {
			if !hasData {
				return c.ServeConn(ctx, conn) // a new configuration changed the chains
			}
			var err error
			if connHasData, err = chains.inspect(conn, needs, &props); err != nil {
				return err
			}
		}
		chain := chains.match(&props)
		if chain == nil {
			conn.CloseReason = network.ClosedNoFilterChain
			return noChainError(&props)
		}
		if chain.group.Join(conn) {
			return serve(ctx, conn, chain.handler, connHasData)
		}
		// A new configuration replaced or removed the chain: choose again.
	}
}

// match returns the chain for a connection with these properties, or nil.
func (c *chainSet) match(props *chainmatch.Connection) *compiledChain {
	if i := c.matcher.Match(props); i >= 0 {
		return c.chains[i]
	}
	if len(c.chains) > c.matchCount {
		return c.chains[c.matchCount]
	}
	return nil
}

// serve makes h the handler of conn. If h waits for the client's first bytes and hasData is false,
// serve parks conn; otherwise it calls h. hasData is true if conn is known to have bytes to read.
func serve(ctx context.Context, conn *network.Conn, h network.Handler, hasData bool) error {
	conn.SetReadDeadline(time.Time{})
	conn.Handler = h
	p, ok := h.(network.ClientFirstHandler)
	if !ok || hasData {
		return h.ServeConn(ctx, conn)
	}
	if d := p.IdleTimeout(); d > 0 {
		conn.SetReadDeadline(time.Now().Add(d))
	}
	return network.ErrPark
}

// noChainError returns the error for a connection that no chain matches.
func noChainError(props *chainmatch.Connection) error {
	text := fmt.Sprintf("from %s to %s", props.Source, props.Destination)
	if props.Transport == config.TransportTLS {
		text += fmt.Sprintf(", TLS for %q", props.ServerName)
	}
	if len(props.Protocols) > 0 {
		text += fmt.Sprintf(", protocols %q", props.Protocols)
	}
	return fmt.Errorf("%w: %s", errNoChain, text)
}

// connectionOf returns the properties of conn that are known before its first bytes.
func connectionOf(conn *network.Conn) chainmatch.Connection {
	directRemote, _ := conn.Addrs().DirectRemote()
	return chainmatch.Connection{
		Destination: unmapped(addrPort(conn.LocalAddr())), Source: unmapped(addrPort(conn.RemoteAddr())),
		DirectSource: unmapped(addrPort(directRemote)).Addr(),
	}
}
