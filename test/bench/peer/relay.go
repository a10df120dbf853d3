package peer

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
)

// Relay returns the baseline for the cost of Go's network poller: a process of this executable that
// copies bytes between connections. Its main function calls RunRelay for the arguments "relay
// LISTEN ORIGIN".
func Relay(self string) Program {
	return Program{Name: "relay", Path: self, configure: func(c Config) ([]string, error) {
		return []string{"relay", c.Listen.String(), c.Origin.String()}, nil
	}}
}

// RunRelay accepts connections and relays each to a new connection to the origin, with two
// goroutines per connection. It returns only with an error.
func RunRelay(listen, origin netip.AddrPort) error {
	listener, err := net.Listen("tcp", listen.String())
	if err != nil {
		return err
	}
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		down, err := listener.Accept()
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		relays.Go(func() {
			defer down.Close() //nolint:errcheck // the end of a relay is silent
			up, err := net.Dial("tcp", origin.String())
			if err != nil {
				return // the client sees its connection closed
			}
			defer up.Close() //nolint:errcheck // the end of a relay is silent
			var responses sync.WaitGroup
			responses.Go(func() {
				relay(down, up)
				_ = down.Close() // makes the relay of the other direction return
			})
			relay(up, down)
			_ = up.Close()
			responses.Wait()
		})
	}
}

// relay copies until either side ends. It hides the methods that let io.Copy use splice: for small
// messages a copy costs less.
func relay(to io.Writer, from io.Reader) {
	type writer struct{ io.Writer }
	type reader struct{ io.Reader }
	// An error ends the relay; it may be a normal disconnect.
	_, _ = io.CopyBuffer(writer{to}, reader{from}, make([]byte, 64<<10))
}
