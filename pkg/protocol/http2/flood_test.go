package http2

import (
	"errors"
	"testing"
	"time"
)

// testClient is a client of a server session. It also resets and releases the session's streams, as
// the engine does.
type testClient struct {
	t       *testing.T
	session *Session
	now     time.Time
	lastID  uint32 // identifier of the last stream that the client opened
}

func newTestClient(t *testing.T) *testClient {
	t.Helper()
	p := &testClient{t: t, session: NewSession(Config{Role: Server}), now: epoch}
	p.session.AppendPreface(nil)
	if err := p.send(AppendSettings(nil), AppendSettingsAck(nil)); err != nil {
		t.Fatal(err)
	}
	return p
}

// send passes frames to the session. The error is nil or a *ConnectionError.
func (p *testClient) send(frames ...[]byte) error {
	p.t.Helper()
	for _, b := range frames {
		f, n, err := ParseFrame(b, MaxFrameSize)
		if err != nil || n != len(b) {
			p.t.Fatalf("ParseFrame(%x) = %d, %v; want a complete frame", b, n, err)
		}
		var e Event
		_, err = p.session.Handle(nil, f, p.now, &e)
		var streamErr *StreamError
		if errors.As(err, &streamErr) {
			st := p.session.Stream(streamErr.ID)
			if _, err = p.session.Fail(nil, streamErr, p.now); st != nil {
				p.session.Release(nil, st, Cancel)
			}
		}
		if err != nil {
			return err
		}
		if e.Kind == StreamReset {
			p.session.Release(nil, e.Stream, Cancel)
		}
	}
	return nil
}

// headersFrame returns the HEADERS frame of a request on the next stream.
func (p *testClient) headersFrame(end bool) []byte {
	if p.lastID++; p.lastID%2 == 0 {
		p.lastID++
	}
	return AppendHeaders(nil, p.lastID, []byte{0x83, 0x86, 0x84, 0x01, 1, 'a'}, end, MinFrameSize)
}

// respond sends the complete response on the last stream, with a body of n bytes.
func (p *testClient) respond(n int) {
	p.t.Helper()
	st := p.session.Stream(p.lastID)
	if _, err := p.session.AppendResponse(nil, st, newResponse(200, -1), ResponseOptions{}); err != nil {
		p.t.Fatal(err)
	}
	if _, sent, err := p.session.AppendData(nil, st, make([]byte, n), true); err != nil || sent != n {
		p.t.Fatalf("sent %d bytes, %v; want %d", sent, err, n)
	}
	p.session.Release(nil, st, Cancel)
}

// attacks returns at least one attack for each flood with a rate limit. send sends the frames of
// the attack once; spent is the number of tokens that newTestClient has already taken.
func attacks() []struct {
	name  string
	flood Flood
	spent int
	send  func(p *testClient) error
} {
	return []struct {
		name  string
		flood Flood
		spent int
		send  func(p *testClient) error
	}{
		{"immediate resets", FloodRapidReset, 0, func(p *testClient) error {
			return p.send(p.headersFrame(true), AppendRSTStream(nil, p.lastID, Cancel))
		}},
		{"resets at the end of the rapid reset window", FloodRapidReset, 0, func(p *testClient) error {
			head := p.headersFrame(true)
			now := p.now
			p.now = now.Add(1 - rapidResetWindow)
			err := p.send(head)
			p.now = now
			if err != nil {
				return err
			}
			return p.send(AppendRSTStream(nil, p.lastID, Cancel))
		}},
		{"repeated resets of one stream", FloodRapidReset, 0, func(p *testClient) error {
			return p.send(AppendRSTStream(nil, p.lastID, Cancel))
		}},
		{"malformed requests", FloodMadeYouReset, 0, func(p *testClient) error {
			p.headersFrame(true)
			return p.send(AppendHeaders(nil, p.lastID, []byte{0x83}, true, MinFrameSize))
		}},
		{"window updates of 0 on open streams", FloodMadeYouReset, 0, func(p *testClient) error {
			return p.send(p.headersFrame(true), AppendWindowUpdate(nil, p.lastID, 0))
		}},
		{"excessive window updates on open streams", FloodMadeYouReset, 0, func(p *testClient) error {
			return p.send(p.headersFrame(true), AppendWindowUpdate(nil, p.lastID, MaxWindow))
		}},
		{"DATA after END_STREAM", FloodMadeYouReset, 0, func(p *testClient) error {
			return p.send(p.headersFrame(true), AppendData(nil, p.lastID, []byte("x"), true))
		}},
		{"HEADERS after END_STREAM", FloodMadeYouReset, 0, func(p *testClient) error {
			return p.send(p.headersFrame(true), AppendHeaders(nil, p.lastID, []byte{0x83}, true, MinFrameSize))
		}},
		{"PRIORITY of the wrong size on open streams", FloodMadeYouReset, 0, func(p *testClient) error {
			return p.send(p.headersFrame(true), append(AppendFrameHeader(nil, 1, FramePriority, 0, p.lastID), 0))
		}},
		{"SETTINGS", FloodSettings, 2, func(p *testClient) error { return p.send(AppendSettings(nil)) }},
		{"PING", FloodPing, 0, func(p *testClient) error { return p.send(AppendPing(nil, false, [8]byte{})) }},
		{"empty DATA", FloodEmptyData, 0, func(p *testClient) error { return p.send(AppendData(nil, p.lastID, nil, false)) }},
		{"DATA with padding only", FloodEmptyData, 0, func(p *testClient) error {
			return p.send(append(AppendFrameHeader(nil, 3, FrameData, FlagPadded, p.lastID), 2, 0, 0))
		}},
		{"empty DATA on a reset stream", FloodEmptyData, 0, func(p *testClient) error {
			if st := p.session.Stream(p.lastID); st != nil {
				p.session.Release(nil, st, Cancel)
			}
			return p.send(AppendData(nil, p.lastID, nil, false))
		}},
		{"small window updates of the connection", FloodWindowUpdate, 0, func(p *testClient) error { return p.send(AppendWindowUpdate(nil, 0, 1)) }},
		{"small window updates of a stream", FloodWindowUpdate, 0, func(p *testClient) error { return p.send(AppendWindowUpdate(nil, p.lastID, 1)) }},
		{"PRIORITY", FloodPriority, 0, func(p *testClient) error {
			return p.send(append(AppendFrameHeader(nil, 5, FramePriority, 0, p.lastID), 0, 0, 0, 0, 1))
		}},
		{"PRIORITY_UPDATE", FloodPriority, 0, func(p *testClient) error {
			return p.send(append(AppendFrameHeader(nil, 4, FramePriorityUpdate, 0, 0), 0, 0, 0, 1))
		}},
		{"frames of an unknown type", FloodPriority, 0, func(p *testClient) error { return p.send(AppendFrameHeader(nil, 0, 99, 0, 0)) }},
		{"GOAWAY", FloodPriority, 0, func(p *testClient) error { return p.send(AppendGoAway(nil, 0, NoError, "")) }},
	}
}

// TestFloods verifies that each attack ends the connection with the frame that exceeds its rate
// limit, and that the same frames at the allowed rate do not end it.
func TestFloods(t *testing.T) {
	for _, c := range attacks() {
		t.Run(c.name, func(t *testing.T) {
			p := newTestClient(t)
			if err := p.send(p.headersFrame(false)); err != nil {
				t.Fatal(err)
			}
			b := p.session.cfg.FloodLimits.rateLimit(c.flood)
			for i := range b.Burst - c.spent {
				if err := c.send(p); err != nil {
					t.Fatalf("number %d: %v, want none until %d", i+1, err, b.Burst-c.spent)
				}
			}
			checkFlood(t, c.send(p), c.flood)
			p.now = p.now.Add(time.Second)
			for i := range b.PerSecond {
				if err := c.send(p); err != nil {
					t.Fatalf("number %d a second later: %v, want none until %d", i+1, err, b.PerSecond)
				}
			}
			checkFlood(t, c.send(p), c.flood)
		})
		t.Run(c.name+", slowly", func(t *testing.T) {
			p := newTestClient(t)
			if err := p.send(p.headersFrame(false)); err != nil {
				t.Fatal(err)
			}
			b := p.session.cfg.FloodLimits.rateLimit(c.flood)
			for i := range 10 * b.Burst {
				p.now = p.now.Add(refillInterval(b))
				if err := c.send(p); err != nil {
					t.Fatalf("number %d: %v, want no error", i+1, err)
				}
			}
		})
	}
}

func checkFlood(t *testing.T, err error, want Flood) {
	t.Helper()
	var connErr *ConnectionError
	if !errors.As(err, &connErr) || connErr.Code != EnhanceYourCalm || connErr.Flood != want {
		t.Fatalf("error %v, want ENHANCE_YOUR_CALM for %v", err, want)
	}
}

// TestContinuationFlood verifies that the CONTINUATION frames and the bytes of a header block are
// bounded, whether the block arrives in one frame or in many.
func TestContinuationFlood(t *testing.T) {
	sendHeaders := func(p *testClient, n int) error {
		return p.send(append(AppendFrameHeader(nil, n, FrameHeaders, FlagEndStream, 1), make([]byte, n)...))
	}
	sendContinuation := func(p *testClient, n int) error {
		return p.send(append(AppendFrameHeader(nil, n, FrameContinuation, 0, 1), make([]byte, n)...))
	}
	t.Run("frames", func(t *testing.T) {
		p := newTestClient(t)
		err := sendHeaders(p, 0)
		frames := 0
		for ; err == nil; frames++ {
			err = sendContinuation(p, 0)
		}
		if checkFlood(t, err, FloodContinuation); frames != 65 {
			t.Fatalf("ended at frame %d, want 65", frames)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		p := newTestClient(t)
		err := sendHeaders(p, MinFrameSize)
		frames := 1
		for ; err == nil; frames++ {
			err = sendContinuation(p, MinFrameSize)
		}
		if checkFlood(t, err, FloodContinuation); frames != 17 {
			t.Fatalf("ended at frame %d, want 17, which is above 256 KiB", frames)
		}
	})
	t.Run("one frame", func(t *testing.T) {
		p := newTestClient(t)
		n := p.session.cfg.FloodLimits.BlockBytes + 1
		checkFlood(t, p.send(append(AppendFrameHeader(nil, n, FrameHeaders, FlagEndHeaders, 1), make([]byte, n)...)), FloodContinuation)
	})
}

// TestRegularTrafficIsNotAFlood verifies that patterns of regular traffic exceed no flood limit.
func TestRegularTrafficIsNotAFlood(t *testing.T) {
	cases := []struct {
		name string
		send func(p *testClient) error
	}{
		{"load generator: 100 concurrent streams, 50,000 responses per second", func(p *testClient) error {
			if err := p.send(AppendWindowUpdate(nil, 0, 1<<20)); err != nil {
				return err
			}
			for range 1000 { // waves of 100 requests, one every 2 ms
				first := p.lastID
				for range 100 {
					if err := p.send(p.headersFrame(true)); err != nil {
						return err
					}
				}
				last := p.lastID
				for p.lastID = first; p.lastID < last; {
					p.headersFrame(true)
					p.respond(1024)
				}
				p.now = p.now.Add(2 * time.Millisecond)
				if err := p.send(AppendWindowUpdate(nil, 0, 100*1024)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"browser that closes a page: 100 requests, all reset, every 4 seconds", func(p *testClient) error {
			for range 100 {
				for range 100 {
					if err := p.send(p.headersFrame(true)); err != nil {
						return err
					}
				}
				for id := p.lastID - 198; id <= p.lastID; id += 2 {
					if err := p.send(AppendRSTStream(nil, id, Cancel)); err != nil {
						return err
					}
				}
				p.now = p.now.Add(4 * time.Second)
			}
			return nil
		}},
		{"host that hangs: 1000 requests per second exceed a deadline of 100 ms", func(p *testClient) error {
			for range 600 {
				for range 100 {
					if err := p.send(p.headersFrame(true)); err != nil {
						return err
					}
				}
				p.now = p.now.Add(100 * time.Millisecond)
				for id := p.lastID - 198; id <= p.lastID; id += 2 {
					if err := p.send(AppendRSTStream(nil, id, Cancel)); err != nil {
						return err
					}
				}
			}
			return nil
		}},
		{"hedging client: of two requests, one gets a response and one is reset", func(p *testClient) error {
			for range 10000 {
				if err := p.send(p.headersFrame(true)); err != nil {
					return err
				}
				p.respond(0)
				if err := p.send(p.headersFrame(true), AppendRSTStream(nil, p.lastID, Cancel)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"browser priorities: one for each request", func(p *testClient) error {
			for range 1000 {
				err := p.send(p.headersFrame(true), append(AppendFrameHeader(nil, 5, FramePriority, 0, p.lastID), 0, 0, 0, 0, 1))
				if err != nil {
					return err
				}
				p.respond(0)
			}
			return nil
		}},
		{"gRPC client that measures the bandwidth with PING", func(p *testClient) error {
			if err := p.send(p.headersFrame(true)); err != nil {
				return err
			}
			st := p.session.Stream(p.lastID)
			if _, err := p.session.AppendResponse(nil, st, newResponse(200, -1), ResponseOptions{}); err != nil {
				return err
			}
			for range 10000 {
				if _, n, err := p.session.AppendData(nil, st, make([]byte, 100), false); n != 100 || err != nil {
					p.t.Fatalf("sent %d bytes, %v; want 100", n, err)
				}
				if err := p.send(AppendPing(nil, false, [8]byte{}), AppendWindowUpdate(nil, p.lastID, 100), AppendWindowUpdate(nil, 0, 100)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"slow reader: a window update for each 4 KiB, long after the response was sent", func(p *testClient) error {
			if err := p.send(AppendWindowUpdate(nil, 0, 1<<30), AppendSettings(nil, Setting{SettingInitialWindowSize, 64 << 20})); err != nil {
				return err
			}
			if err := p.send(p.headersFrame(true)); err != nil {
				return err
			}
			p.respond(64 << 20)
			for range 16 << 10 {
				if err := p.send(AppendWindowUpdate(nil, p.lastID, 4<<10), AppendWindowUpdate(nil, 0, 4<<10)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"upload in small pieces, each followed by empty DATA", func(p *testClient) error {
			if err := p.send(p.headersFrame(false)); err != nil {
				return err
			}
			for range 10000 {
				if err := p.send(AppendData(nil, p.lastID, []byte("x"), false), AppendData(nil, p.lastID, nil, false)); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.send(newTestClient(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestHostResetsAreNotAFlood verifies that a host that resets streams that the session opened, or
// sends malformed responses on them, causes no flood.
func TestHostResetsAreNotAFlood(t *testing.T) {
	s := NewSession(Config{Role: Client})
	s.AppendPreface(nil)
	handle := func(b []byte) error {
		f, _, err := ParseFrame(b, MinFrameSize)
		if err == nil {
			_, err = s.Handle(nil, f, epoch, new(Event))
		}
		return err
	}
	if err := handle(AppendSettings(nil)); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		for _, malformed := range []bool{false, true} {
			_, st, err := s.AppendRequest(nil, newGetRequest("/"), RequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !malformed {
				err = handle(AppendRSTStream(nil, st.ID, RefusedStream))
			} else {
				var streamErr *StreamError
				if err = handle(AppendHeaders(nil, st.ID, []byte{0x83}, true, MinFrameSize)); !errors.As(err, &streamErr) {
					t.Fatalf("error %v, want a *StreamError", err)
				}
				_, err = s.Fail(nil, streamErr, epoch)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Release(nil, st, Cancel)
		}
	}
	var connErr *ConnectionError
	err := error(nil)
	for range 501 { // one more than the burst: resets of a closed stream take tokens
		err = handle(AppendRSTStream(nil, 1, RefusedStream))
	}
	if !errors.As(err, &connErr) || connErr.Flood != FloodRapidReset {
		t.Fatalf("resets of a closed stream: %v, want %v", err, FloodRapidReset)
	}
}

func TestNegativeBurstDisablesLimit(t *testing.T) {
	s := NewSession(Config{Role: Server, FloodLimits: FloodLimits{Ping: RateLimit{Burst: -1}}})
	s.AppendPreface(nil)
	r := &scriptRunner{s: s, describer: newFrameDescriber(), streams: map[uint32]*Stream{}, now: epoch}
	r.runLine("> SETTINGS")
	if got := r.runLine("repeat 10000 > PING 1"); len(got) != 1 || got[0] != "< PING ack 1" {
		t.Fatalf("the last of 10000 pings: %q, want an acknowledgement", got)
	}
}

// TestResetStreamsHoldSlots verifies that streams that the client resets take slots, all of which
// become free within resetSlotsRefillTime, one after the other. There are MaxConcurrentStreams
// slots, in addition to the open streams.
func TestResetStreamsHoldSlots(t *testing.T) {
	const maxStreams = 16
	type step struct {
		wait      time.Duration // before the step
		open      int           // number of streams that the client opens and resets after rapidResetWindow
		completed int           // number of opened streams that get a complete response and no reset
		refused   int           // expected number of refused streams
	}
	for name, steps := range map[string][]step{
		"all slots held":                 {{open: maxStreams}, {open: maxStreams, refused: maxStreams}},
		"half of the slots released":     {{open: maxStreams}, {wait: resetSlotsRefillTime / 2, open: maxStreams / 2}, {open: 1, refused: 1}},
		"all slots released":             {{open: maxStreams}, {wait: resetSlotsRefillTime, open: maxStreams}, {open: 1, refused: 1}},
		"one slot released at a time":    {{open: maxStreams}, {wait: resetSlotsRefillTime / maxStreams, open: 1}, {wait: resetSlotsRefillTime / maxStreams, open: 1}},
		"complete streams release slots": {{open: maxStreams}, {wait: resetSlotsRefillTime, open: maxStreams, completed: maxStreams / 2}, {open: maxStreams / 2, refused: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestClient(t)
			p.session.cfg.MaxConcurrentStreams = maxStreams
			for i, step := range steps {
				p.now = p.now.Add(step.wait)
				var opened []uint32
				refused := 0
				for range step.open {
					if err := p.send(p.headersFrame(true)); err != nil {
						t.Fatal(err)
					}
					if p.session.Stream(p.lastID) == nil {
						refused++
						continue
					}
					opened = append(opened, p.lastID)
				}
				for j, id := range opened {
					if j < step.completed {
						p.lastID, id = id, p.lastID
						p.respond(1)
						p.lastID = id
						continue
					}
					p.session.Stream(id).openedAt = p.now.Add(-rapidResetWindow)
					if err := p.send(AppendRSTStream(nil, id, Cancel)); err != nil {
						t.Fatal(err)
					}
				}
				if refused != step.refused {
					t.Fatalf("step %d: %d of %d streams were refused, want %d", i+1, refused, step.open, step.refused)
				}
			}
		})
	}
}
