package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// hessianZero is the integer 0 of Hessian 2: those near to it are one byte each.
const hessianZero = 0x90

// Longest strings, in bytes, with a length in one byte and in one and a quarter.
const (
	tinyString  = 31
	shortString = 1023
)

// errString is no string that a peer of a measurement sends.
var errString = errors.New("not a string in one piece")

// appendString appends a string of ASCII, of which each byte counts as one
// character, of up to 32 KB.
func appendString(b []byte, s string) []byte {
	switch n := len(s); {
	case n <= tinyString:
		b = append(b, byte(n))
	case n <= shortString:
		b = append(b, 0x30+byte(n>>8), byte(n))
	default:
		b = append(b, 'S', byte(n>>8), byte(n))
	}
	return append(b, s...)
}

// readString returns the string of ASCII that b begins with and what is behind it.
func readString(b []byte) (s, rest []byte, err error) {
	var head, n int
	switch {
	case len(b) > 0 && b[0] <= tinyString:
		head, n = 1, int(b[0])
	case len(b) > 1 && b[0] >= 0x30 && b[0] <= 0x33:
		head, n = 2, int(b[0]-0x30)<<8|int(b[1])
	case len(b) > 2 && b[0] == 'S':
		head, n = 3, int(binary.BigEndian.Uint16(b[1:]))
	default:
		return nil, nil, fmt.Errorf("%w: %.20q", errString, b)
	}
	if len(b) < head+n {
		return nil, nil, fmt.Errorf("a string of %d bytes in %d", n, len(b)-head)
	}
	return b[head : head+n], b[head+n:], nil
}

// appendMap appends a map of strings without a type.
func appendMap(b []byte, pairs []pair) []byte {
	b = append(b, 'H')
	for _, p := range pairs {
		b = appendString(appendString(b, p.key), p.value)
	}
	return append(b, 'Z')
}
