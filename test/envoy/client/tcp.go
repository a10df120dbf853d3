package client

import (
	"net"
	"time"
)

// silence is how long a client of TCP or of frames waits for more after something arrived. Hosts of
// the comparison respond in less.
const silence = 250 * time.Millisecond

// halfCloser is a connection whose write side can be closed.
type halfCloser interface{ CloseWrite() error }

func runTCP(conn net.Conn, s *Script, id string, begin, deadline time.Time) Outcome {
	r := &reader{conn: conn}
	for _, p := range s.parts(id) {
		r.waitFor(p.Pause)
		if _, err := conn.Write(p.Data); err != nil {
			break
		}
	}
	if c, ok := conn.(halfCloser); ok && s.HalfClose {
		_ = c.CloseWrite() // the end of the connection shows a failure
	}
	quiet := s.CloseWait
	if quiet == 0 {
		quiet = silence
	}
	last := time.Now()
	for r.more(earlier(last.Add(quiet), deadline)) {
		last = time.Now()
	}
	received := string(r.buf)
	return Outcome{Received: &received, Closed: r.end, Elapsed: last.Sub(begin)}
}

// waitFor reads for some time.
func (r *reader) waitFor(d time.Duration) {
	end := time.Now().Add(d)
	for time.Now().Before(end) && r.more(end) {
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
