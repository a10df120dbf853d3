package load

import (
	"net/netip"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name    string
		input   string
		n       int
		want    responseHead
		wantErr bool
	}{
		{"lower case Content-Length", "HTTP/1.1 200 OK\r\nServer: a\r\ncontent-LENGTH:  12 \r\n\r\nabc", 52, responseHead{length: 12}, false},
		{"Connection: close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 57, responseHead{closes: true}, false},
		{"Connection: keep-alive", "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", 62, responseHead{}, false},
		{"incomplete head", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", 0, responseHead{}, false},
		{"other status", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", 0, responseHead{}, true},
		{"other version", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 0, responseHead{}, true},
		{"no length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, responseHead{}, true},
		{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, responseHead{}, true},
		{"header without colon", "HTTP/1.1 200 OK\r\nContent\r\n\r\n", 0, responseHead{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n, got, err := parse([]byte(test.input))
			if n != test.n || got != test.want || (err != nil) != test.wantErr {
				t.Errorf("parse(%q) = %d, %+v, %v, want %d, %+v, error: %v", test.input, n, got, err, test.n, test.want, test.wantErr)
			}
		})
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	head := []byte("HTTP/1.1 200 OK\r\nServer: nginx\r\nConnection: keep-alive\r\nContent-Length: 1024\r\n\r\n")
	if n := testing.AllocsPerRun(1000, func() {
		if _, _, err := parse(head); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("parse allocates %v times, want 0", n)
	}
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	var q queue[int]
	in, out := 0, 0
	// Grows, wraps and empties the queue.
	for _, step := range []int{3, -2, 20, -15, 40, -46} {
		for range max(step, 0) {
			q.push(in)
			in++
		}
		for range max(-step, 0) {
			if got := q.pop(); got != out {
				t.Fatalf("pop = %d, want %d", got, out)
			}
			out++
		}
		if q.len() != in-out {
			t.Fatalf("len = %d, want %d", q.len(), in-out)
		}
	}
}

func TestInvalidJobs(t *testing.T) {
	valid := Job{Address: netip.MustParseAddrPort("127.0.0.1:1"), Request: []byte("x"), Connections: 1, Measure: 1}
	if err := valid.check(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*Job)
	}{
		{"IPv6", func(j *Job) { j.Address = netip.MustParseAddrPort("[::1]:1") }},
		{"no request", func(j *Job) { j.Request = nil }},
		{"no connections", func(j *Job) { j.Connections = 0 }},
		{"no duration", func(j *Job) { j.Measure = 0 }},
		{"negative rate", func(j *Job) { j.Rate = -1 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			job := valid
			test.change(&job)
			if _, err := Run(job); err == nil {
				t.Errorf("Run(%+v): no error", job)
			}
		})
	}
}
