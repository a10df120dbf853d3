// Package swar compares eight bytes of a text in one step (SIMD within a register). A word holds
// the bytes in order, the first in its lowest bits. A comparison marks the bytes that match: it
// sets their high bits and clears all other bits. bits.TrailingZeros64(mark)/8 is the index of the
// first match, or 8 if there is none. The compiler inlines every function.
package swar

const (
	// Ones has the value 1 in each byte, so c*Ones has c in each byte.
	Ones = 0x0101010101010101
	// HighBits are the high bits of the bytes, which are 0 in ASCII.
	HighBits = 0x8080808080808080
)

// Load returns the first eight bytes of b in one load. It panics if b is shorter.
func Load[T []byte | string](b T) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// Below marks the bytes of w that are less than n, which is at most 128. The lowest mark is
// correct; higher marks may be wrong because of a borrow.
func Below(w, n uint64) uint64 { return (w - n*Ones) &^ w & HighBits }

// Equal marks the bytes of w that are c, which is less than 128. The lowest mark is correct; higher
// marks may be wrong because of a borrow.
func Equal(w, c uint64) uint64 { return Below(w^c*Ones, 1) }

// InRange marks, exactly, the bytes of w from first to last, which are both less than 128. All
// bytes of w must be less than 128.
func InRange(w, first, last uint64) uint64 {
	return (w + (128-first)*Ones) &^ (w + (127-last)*Ones) & HighBits
}
