package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// hessianZero encodes the integer 0 in Hessian 2; integers near 0 take one byte.
const hessianZero = 0x90

// Maximum lengths, in bytes, of strings with a length of one byte and with a length of ten bits.
const (
	maxTinyString  = 31
	maxShortString = 1023
)

// errNotString reports a value that is not a string, or a string in several chunks.
var errNotString = errors.New("not a string in one piece")

// appendString appends an ASCII string of less than 64 KB; each byte counts as one character.
func appendString(b []byte, s string) []byte {
	switch n := len(s); {
	case n <= maxTinyString:
		b = append(b, byte(n))
	case n <= maxShortString:
		b = append(b, 0x30+byte(n>>8), byte(n))
	default:
		b = append(b, 'S', byte(n>>8), byte(n))
	}
	return append(b, s...)
}

// readString returns the ASCII string at the start of b and the bytes after it.
func readString(b []byte) (s, rest []byte, err error) {
	var head, n int
	switch {
	case len(b) > 0 && b[0] <= maxTinyString:
		head, n = 1, int(b[0])
	case len(b) > 1 && b[0] >= 0x30 && b[0] <= 0x33:
		head, n = 2, int(b[0]-0x30)<<8|int(b[1])
	case len(b) > 2 && b[0] == 'S':
		head, n = 3, int(binary.BigEndian.Uint16(b[1:]))
	default:
		return nil, nil, fmt.Errorf("%w: %.20q", errNotString, b)
	}
	if len(b) < head+n {
		return nil, nil, fmt.Errorf("a string of %d bytes in %d", n, len(b)-head)
	}
	return b[head : head+n], b[head+n:], nil
}

// appendMap appends an untyped map of strings.
func appendMap(b []byte, pairs []pair) []byte {
	b = append(b, 'H')
	for _, p := range pairs {
		b = appendString(appendString(b, p.key), p.value)
	}
	return append(b, 'Z')
}
