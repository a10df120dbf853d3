package peer

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
)

// Relay returns the yardstick of what Go's network poller costs: a process of
// this very program that copies bytes and understands nothing of them. Run is
// called in it, by "self relay LISTEN ORIGIN".
func Relay(self string) Program {
	return Program{Name: "relay", Path: self, configure: func(c Config) ([]string, error) {
		return []string{"relay", c.Listen.String(), c.Origin.String()}, nil
	}}
}

// RunRelay accepts connections for ever and copies each to one of its own to the
// origin, with two goroutines a connection. It returns only with an error.
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
			defer up.Close() //nolint:errcheck // the same
			var answers sync.WaitGroup
			answers.Go(func() {
				relay(down, up)
				_ = down.Close() // ends the other direction
			})
			relay(up, down)
			_ = up.Close()
			answers.Wait()
		})
	}
}

// relay copies until either side ends. It hides what io.Copy could make of two
// sockets: for small messages a copy costs less than a splice.
func relay(to io.Writer, from io.Reader) {
	type writer struct{ io.Writer }
	type reader struct{ io.Reader }
	// An end, however it comes, is the end of the connection; nobody is told more.
	_, _ = io.CopyBuffer(writer{to}, reader{from}, make([]byte, 64<<10))
}
