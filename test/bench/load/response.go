package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// responseHead holds the relevant fields of a response head.
type responseHead struct {
	length int  // bytes of the body
	closes bool // the server closes the connection after this response
}

// parse reads the response head at the start of b. n is its length, or 0 if the head is incomplete.
// Any response other than a 200 with a Content-Length is an error, because it is not comparable.
func parse(b []byte) (n int, head responseHead, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, responseHead{}, nil
	}
	rest := b[:end+2]
	if !bytes.HasPrefix(rest, []byte("HTTP/1.1 200 ")) {
		line, _, _ := bytes.Cut(rest, []byte("\r\n"))
		return 0, responseHead{}, fmt.Errorf("the response is %q, want a 200", line)
	}
	head.length = -1
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
			return 0, responseHead{}, fmt.Errorf("the header %q has no colon", field)
		}
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if head.length, err = strconv.Atoi(string(value)); err != nil || head.length < 0 {
				return 0, responseHead{}, fmt.Errorf("the Content-Length is %q", value)
			}
		case bytes.EqualFold(name, []byte("connection")):
			head.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
	if head.length < 0 {
		return 0, responseHead{}, fmt.Errorf("the response has no Content-Length: %q", b[:end])
	}
	return end + 4, head, nil
}
