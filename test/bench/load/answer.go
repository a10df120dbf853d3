package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// answer is what the generator wants to know of an answer's head.
type answer struct {
	length int  // bytes of the body
	last   bool // the server closes the connection after it
}

// parse reads the answer head that b begins with. n is its length, 0 if it is
// not all there. An answer that is not a 200 with its length is an error: it
// would be another measurement.
func parse(b []byte) (n int, a answer, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, answer{}, nil
	}
	rest := b[:end+2]
	if !bytes.HasPrefix(rest, []byte("HTTP/1.1 200 ")) {
		line, _, _ := bytes.Cut(rest, []byte("\r\n"))
		return 0, answer{}, fmt.Errorf("the answer is %q, want a 200", line)
	}
	a.length = -1
	for {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
		if len(rest) == 0 {
			break
		}
		if rest[0]|0x20 != 'c' {
			continue // neither Content-Length nor Connection
		}
		field := rest[:bytes.IndexByte(rest, '\r')]
		name, value, found := bytes.Cut(field, []byte(":"))
		if !found {
			return 0, answer{}, fmt.Errorf("the field %q has no colon", field)
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if a.length, err = strconv.Atoi(string(value)); err != nil || a.length < 0 {
				return 0, answer{}, fmt.Errorf("the Content-Length is %q", value)
			}
		case bytes.EqualFold(name, []byte("connection")):
			a.last = bytes.EqualFold(value, []byte("close"))
		}
	}
	if a.length < 0 {
		return 0, answer{}, fmt.Errorf("the answer has no Content-Length: %q", b[:end])
	}
	return end + 4, a, nil
}
