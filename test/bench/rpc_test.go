package main

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
)

func dial(t *testing.T, address netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readAnswers reads n answers and returns their ids.
func readAnswers(t *testing.T, p *frame.Protocol, conn net.Conn, n int) []uint64 {
	t.Helper()
	var ids []uint64
	var data []byte
	buffer := make([]byte, 64<<10)
	for len(ids) < n {
		read, err := conn.Read(buffer)
		if err != nil {
			t.Fatalf("after %d answers of %d: %v", len(ids), n, err)
		}
		data = append(data, buffer[:read]...)
		for {
			size, f, err := p.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 {
				break
			}
			ids = append(ids, f.ID)
			data = data[size:]
		}
	}
	return ids
}

// TestAnswersAreHeldBackUntilAllHaveCome sends requests on two connections and a
// heartbeat after them: only that is answered, until the last request comes.
func TestAnswersAreHeldBackUntilAllHaveCome(t *testing.T) {
	address := newTestBed(t, "-proxies", direct).host.Origin
	for _, p := range frame.All() {
		t.Run(p.Name(), func(t *testing.T) {
			const each = 2000 // more than the buffers of a socket take
			one, two := dial(t, address), dial(t, address)
			text := frame.Text{Hold: 2 * each}
			gone := dial(t, address) // what it asked does not count
			write(t, gone, p.AppendRequest(nil, 1, text))
			write(t, gone, p.AppendPing(nil, 2))
			readAnswers(t, p, gone, 1)
			gone.Close()
			for _, conn := range []net.Conn{one, two} {
				var requests []byte
				for id := range uint64(each) {
					if conn == two && id == each-1 {
						break
					}
					requests = p.AppendRequest(requests, id, text)
				}
				write(t, conn, p.AppendPing(requests, 1<<20))
				if ids := readAnswers(t, p, conn, 1); ids[0] != 1<<20 {
					t.Fatalf("the answer is that of request %d, want that of the heartbeat", ids[0])
				}
			}
			write(t, two, p.AppendRequest(nil, each-1, text))
			for _, conn := range []net.Conn{one, two} {
				ids := readAnswers(t, p, conn, each)
				for i, id := range ids {
					if id != uint64(i) {
						t.Fatalf("answer %d is that of request %d", i, id)
					}
				}
			}
		})
	}
}

func write(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}
