package hessian

import (
	"encoding/binary"
	"unicode/utf8"
)

// maxChunk is the maximum number of UTF-16 code units in a chunk, as in Java writers.
const maxChunk = 0x8000

// AppendNull appends a null.
func AppendNull(dst []byte) []byte { return append(dst, 'N') }

// AppendBool appends a bool.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 'T')
	}
	return append(dst, 'F')
}

// AppendInt appends an int in its shortest form (Hessian 2.0 serialization 4.5).
func AppendInt(dst []byte, v int32) []byte {
	switch {
	case -0x10 <= v && v <= 0x2f:
		return append(dst, byte(0x90+v))
	case -0x800 <= v && v <= 0x7ff:
		return append(dst, byte(0xc8+v>>8), byte(v))
	case -0x40000 <= v && v <= 0x3ffff:
		return append(dst, byte(0xd4+v>>16), byte(v>>8), byte(v))
	default:
		return binary.BigEndian.AppendUint32(append(dst, 'I'), uint32(v))
	}
}

// AppendLong appends a long in its shortest form (Hessian 2.0 serialization 4.7).
func AppendLong(dst []byte, v int64) []byte {
	switch {
	case -0x08 <= v && v <= 0x0f:
		return append(dst, byte(0xe0+v))
	case -0x800 <= v && v <= 0x7ff:
		return append(dst, byte(0xf8+v>>8), byte(v))
	case -0x40000 <= v && v <= 0x3ffff:
		return append(dst, byte(0x3c+v>>16), byte(v>>8), byte(v))
	case v == int64(int32(v)):
		return binary.BigEndian.AppendUint32(append(dst, 0x59), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 'L'), uint64(v))
	}
}

// AppendString appends a string, byte for byte like Java writers (Hessian 2.0 serialization 4.12).
// A character beyond U+FFFF becomes two surrogates. Chunks have at most 32,768 code units and do
// not split a character; the last chunk has the shortest form. Invalid UTF-8 in s becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	for {
		size, length, plain := chunkOf(s)
		switch {
		case size < len(s):
			dst = append(dst, 'R', byte(length>>8), byte(length))
		case length <= 0x1f:
			dst = append(dst, byte(length))
		case length <= 0x3ff:
			dst = append(dst, byte(0x30+length>>8), byte(length))
		default:
			dst = append(dst, 'S', byte(length>>8), byte(length))
		}
		if plain {
			dst = append(dst, s[:size]...)
		} else {
			dst = appendUnits(dst, s[:size])
		}
		if size == len(s) {
			return dst
		}
		s = s[size:]
	}
}

// chunkOf returns the size in bytes and the length in code units of the longest chunk at the start
// of s. plain reports whether the encoding of the chunk is the bytes of s.
func chunkOf(s string) (size, length int, plain bool) {
	if first := s[:min(len(s), maxChunk)]; isASCII(first) {
		return len(first), len(first), true
	}
	plain = true
	for size < len(s) && length < maxChunk {
		if s[size] < utf8.RuneSelf {
			size++
			length++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[size:])
		switch {
		case r > 0xffff && length == maxChunk-1:
			return size, length, plain
		case r > 0xffff:
			length += 2
			plain = false
		case r == utf8.RuneError && n == 1:
			length++
			plain = false
		default:
			length++
		}
		size += n
	}
	return size, length, plain
}

// appendUnits appends s as code units of one to three bytes.
func appendUnits(dst []byte, s string) []byte {
	for _, r := range s {
		if r <= 0xffff {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = appendSurrogate(dst, 0xd800|(r-0x10000)>>10)
		dst = appendSurrogate(dst, 0xdc00|(r-0x10000)&0x3ff)
	}
	return dst
}

// appendSurrogate appends a surrogate, which UTF-8 cannot encode.
func appendSurrogate(dst []byte, unit rune) []byte {
	return append(dst, byte(0xe0|unit>>12), byte(0x80|unit>>6&0x3f), byte(0x80|unit&0x3f))
}

// AppendMapStart appends the head of a map without a type. Alternating keys and values follow, then
// AppendMapEnd (Hessian 2.0 serialization 4.8). Java reads it as a HashMap.
func AppendMapStart(dst []byte) []byte { return append(dst, 'H') }

// AppendMapEnd appends the end of a map.
func AppendMapEnd(dst []byte) []byte { return append(dst, 'Z') }
