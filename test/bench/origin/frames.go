package origin

import (
	"bytes"
	"slices"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// heldRequest is a request whose response is held back.
type heldRequest struct {
	id   uint64
	text []byte
}

// handleFrames processes every complete frame of data, stores all responses in c.out for one write,
// and returns the rest.
func (s *server) handleFrames(c *conn, data []byte) (rest []byte, err error) {
	responses := s.batch[:0]
	for {
		n, f, err := c.protocol.Parse(data)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		data = data[n:]
		switch f.Kind {
		case frame.Ping:
			responses = c.protocol.AppendPong(responses, f.ID)
		case frame.Request:
			if responses, err = s.respondToFrame(c, responses, f); err != nil {
				return nil, err
			}
		default: // other frames need no response
		}
	}
	// The buffer is kept for reuse. c.out borrows it until it is written; handle copies what
	// remains.
	s.batch = responses
	c.out = responses
	return data, nil
}

// respondToFrame appends the response, or holds the request until as many have arrived as its
// Text.Hold says.
func (s *server) respondToFrame(c *conn, responses []byte, f frame.Frame) ([]byte, error) {
	want, err := frame.ReadHold(f.Text)
	if err != nil {
		return nil, err
	}
	if want == 0 {
		return c.protocol.AppendResponse(responses, f.ID, f.Text), nil
	}
	c.held = append(c.held, heldRequest{f.ID, bytes.Clone(f.Text)})
	s.held++
	s.release = s.held >= int(want)
	return responses, nil
}

// releaseAll responds to all held requests.
func (s *server) releaseAll() {
	s.held, s.release = 0, false
	for fd, c := range s.conns {
		if c == nil || len(c.held) == 0 {
			continue
		}
		// Each connection gets its own array, because what a socket does not accept stays there.
		out := slices.Clone(c.out)
		for _, h := range c.held {
			out = c.protocol.AppendResponse(out, h.id, h.text)
		}
		c.out, c.held = out, nil
		if err := s.flush(fd, c); err != nil {
			s.close(fd)
		}
	}
}
