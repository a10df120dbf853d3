// Package wire holds the fields of HTTP messages and the HTTP/2 frames that the clients and the
// origins of the comparison share. It validates nothing, because the proxies between a client and
// an origin are under test.
package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// CaseField is the name of the request field that says to which case a request belongs.
const CaseField = "X-Case"

// Field is a header or trailer field as it was received, or as it is sent.
type Field struct{ Name, Value string }

// Get returns the last value of a field, and whether the field is present. The case of letters in
// name does not matter.
func Get(fields []Field, name string) (value string, found bool) {
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			value, found = f.Value, true
		}
	}
	return value, found
}

// ParseField splits a line at its first colon and trims both parts. A line without a colon becomes
// a field without a value.
func ParseField(line string) Field {
	name, value, _ := strings.Cut(line, ":")
	return Field{strings.TrimSpace(name), strings.TrimSpace(value)}
}

// ParseHead splits the head of an HTTP/1.1 message, which ends with an empty line, into its first
// line and its fields.
func ParseHead(head []byte) (first string, fields []Field) {
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	for _, line := range lines[1:] {
		fields = append(fields, ParseField(line))
	}
	return lines[0], fields
}

// maxHead is the maximum size of the head that ReadHead accepts.
const maxHead = 1 << 20

// ReadHead reads bytes up to and including the first empty line.
func ReadHead(r *bufio.Reader) ([]byte, error) {
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		part, err := r.ReadSlice('\n')
		head = append(head, part...)
		if err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // ReadSlice returns the error itself
			return head, err
		}
		if len(head) > maxHead {
			return head, fmt.Errorf("wire: the head exceeds %d bytes", maxHead)
		}
	}
	return head, nil
}

// ReadChunked reads a chunked body with its trailers. After an error, body has the bytes that
// arrived.
func ReadChunked(r *bufio.Reader) (body []byte, trailers []Field, err error) {
	for {
		line, err := readLine(r)
		if err != nil {
			return body, trailers, err
		}
		digits, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 31)
		if err != nil {
			return body, trailers, fmt.Errorf("wire: chunk size %q: %w", line, err)
		}
		if size == 0 {
			break
		}
		start := len(body)
		body = append(body, make([]byte, size)...)
		n, err := io.ReadFull(r, body[start:])
		body = body[:start+n]
		if err != nil {
			return body, trailers, err
		}
		if _, err := r.Discard(2); err != nil {
			return body, trailers, err
		}
	}
	for {
		line, err := readLine(r)
		if err != nil || line == "" {
			return body, trailers, err
		}
		trailers = append(trailers, ParseField(line))
	}
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
