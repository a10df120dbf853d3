package wire

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

func TestReadHead(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader("GET / HTTP/1.1\r\nA: "+strings.Repeat("x", 100)+"\r\n\r\nbody"), 16)
	head, err := ReadHead(r)
	if err != nil || len(head) != len("GET / HTTP/1.1\r\nA: \r\n\r\n")+100 {
		t.Errorf("ReadHead = %q, %v; want the head, which is longer than the buffer", head, err)
	}
	if head, err := ReadHead(r); err == nil {
		t.Errorf("ReadHead without an empty line = %q, want an error", head)
	}
}

func TestParseHead(t *testing.T) {
	line, fields := ParseHead([]byte("HTTP/1.1 200 OK\r\nA: b: c \r\nno colon\r\na:\r\n\r\n"))
	want := []Field{{"A", "b: c"}, {"no colon", ""}, {"a", ""}}
	if line != "HTTP/1.1 200 OK" || !slices.Equal(fields, want) {
		t.Errorf("ParseHead = %q, %q, want HTTP/1.1 200 OK, %q", line, fields, want)
	}
	if value, found := Get(fields, "A"); value != "" || !found {
		t.Errorf("Get = %q, %v, want the last field of that name", value, found)
	}
}

func TestReadChunked(t *testing.T) {
	for _, test := range []struct {
		text, body string
		trailers   []Field
		complete   bool
	}{
		{"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", "abcde", nil, true},
		{"0\r\nA: b\r\nC: d\r\n\r\n", "", []Field{{"A", "b"}, {"C", "d"}}, true},
		{"5\r\nab", "ab", nil, false},
		{"zz\r\nab", "", nil, false},
		{"1\r\na\r\n", "a", nil, false},
	} {
		body, trailers, err := ReadChunked(bufio.NewReader(strings.NewReader(test.text)))
		if string(body) != test.body || !slices.Equal(trailers, test.trailers) || (err == nil) != test.complete {
			t.Errorf("ReadChunked(%q) = %q, %q, %v; want %q, %q, complete: %v", test.text, body, trailers, err, test.body, test.trailers, test.complete)
		}
	}
}
