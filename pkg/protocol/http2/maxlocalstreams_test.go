package http2

import "testing"

// TestMaxLocalStreams verifies that a session opens at most MaxLocalStreams streams, and fewer if the
// peer allows fewer.
func TestMaxLocalStreams(t *testing.T) {
	for _, test := range []struct {
		name      string
		own, peer uint32
		want      int
	}{
		{"own limit", 3, 10, 3},
		{"limit of the peer", 10, 3, 3},
		{"no own limit", 0, 7, 7},
	} {
		p := newPair(t, Config{MaxLocalStreams: test.own}, Config{MaxConcurrentStreams: test.peer})
		if got := p.client.AvailableStreams(); got != test.want {
			t.Errorf("%s: AvailableStreams() = %d, want %d", test.name, got, test.want)
		}
	}
}
