package origin

import (
	"bytes"
	"slices"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// held is a request whose answer waits.
type held struct {
	id   uint64
	text []byte
}

// takeFrames takes every whole frame of data, puts the answers into c.out, one
// write for all, and returns what is left over.
func (s *server) takeFrames(c *conn, data []byte) (rest []byte, err error) {
	answers := s.batch[:0]
	for {
		n, f, err := c.speaks.Parse(data)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		data = data[n:]
		switch f.Kind {
		case frame.Ping:
			answers = c.speaks.AppendPong(answers, f.ID)
		case frame.Request:
			if answers, err = s.answerFrame(c, answers, f); err != nil {
				return nil, err
			}
		default: // neither wants an answer
		}
	}
	// Kept for its room. It is c's until it is written; what then is left of it is
	// copied.
	s.batch = answers
	c.out = answers
	return data, nil
}

// answerFrame appends the answer, or keeps the request until as many have come
// as it says.
func (s *server) answerFrame(c *conn, answers []byte, f frame.Frame) ([]byte, error) {
	want, err := frame.ReadHold(f.Text)
	if err != nil {
		return nil, err
	}
	if want == 0 {
		return c.speaks.AppendAnswer(answers, f.ID, f.Text), nil
	}
	c.held = append(c.held, held{f.ID, bytes.Clone(f.Text)})
	s.held++
	s.release = s.held >= int(want)
	return answers, nil
}

// releaseAll answers all that was held back.
func (s *server) releaseAll() {
	s.held, s.release = 0, false
	for fd, c := range s.conns {
		if c == nil || len(c.held) == 0 {
			continue
		}
		// A fresh array for each: what a socket does not take stays.
		out := slices.Clone(c.out)
		for _, h := range c.held {
			out = c.speaks.AppendAnswer(out, h.id, h.text)
		}
		c.out, c.held = out, nil
		if err := s.flush(fd, c); err != nil {
			s.close(fd)
		}
	}
}
