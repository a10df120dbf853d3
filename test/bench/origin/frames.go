package origin

import (
	"bytes"
	"slices"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// heldRequest is a request to which the origin responds in releaseAll.
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
	// The buffer is reused. c.out refers to it until it is written; handle copies the rest.
	s.batch = responses
	c.out = responses
	return data, nil
}

// respondToFrame appends the response, or holds the request until Text.Hold requests have arrived.
func (s *server) respondToFrame(c *conn, responses []byte, f frame.Frame) ([]byte, error) {
	hold, err := frame.ReadHold(f.Text)
	if err != nil {
		return nil, err
	}
	if hold == 0 {
		return c.protocol.AppendResponse(responses, f.ID, f.Text), nil
	}
	c.heldRequests = append(c.heldRequests, heldRequest{f.ID, bytes.Clone(f.Text)})
	s.heldCount++
	s.release = s.heldCount >= int(hold)
	return responses, nil
}

// releaseAll responds to all held requests.
func (s *server) releaseAll() {
	s.heldCount, s.release = 0, false
	for fd, c := range s.conns {
		if c == nil || len(c.heldRequests) == 0 {
			continue
		}
		// The clone belongs to the connection, because the connection keeps the rest after an
		// incomplete write.
		out := slices.Clone(c.out)
		for _, h := range c.heldRequests {
			out = c.protocol.AppendResponse(out, h.id, h.text)
		}
		c.out, c.heldRequests = out, nil
		if err := s.flush(fd, c); err != nil {
			s.close(fd)
		}
	}
}
