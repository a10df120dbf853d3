// Package coding implements content codings (RFC 9110 8.4): it negotiates the coding of a response,
// compresses responses while they are read, and decompresses requests within limits.
package coding

import (
	"strings"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// Coding is a content coding.
type Coding uint8

// The codings. Identity means no coding.
const (
	Identity Coding = iota
	Gzip            // RFC 1952
	Zstd            // RFC 8878, with the window of RFC 9659
	codingCount
)

func (c Coding) String() string { return [...]string{"identity", "gzip", "zstd"}[c] }

// ParseCoding returns the coding with the given name, case-insensitively; ok is false for a coding
// that is not supported.
func ParseCoding(name string) (c Coding, ok bool) {
	switch {
	case protocol.EqualFold(name, "gzip"), protocol.EqualFold(name, "x-gzip"): // RFC 9110 8.4.1.3
		return Gzip, true
	case protocol.EqualFold(name, "zstd"):
		return Zstd, true
	case protocol.EqualFold(name, "identity"):
		return Identity, true
	}
	return Identity, false
}

// unspecifiedWeight is the weight of a coding that the request does not mention.
const unspecifiedWeight = -1

// Negotiate returns the coding that the request's Accept-Encoding fields prefer (RFC 9110 12.5.3):
// the first of offered with the greatest weight. It returns Identity if no coding is acceptable, if
// the client prefers identity, or if the request has no such field.
func Negotiate(request *protocol.Header, offered []Coding) Coding {
	weights := [codingCount]int{unspecifiedWeight, unspecifiedWeight, unspecifiedWeight}
	wildcardWeight := unspecifiedWeight // weight of "*": for codings that the field does not name
	for name, value := range request.All() {
		if !protocol.EqualFold(name, "Accept-Encoding") {
			continue
		}
		for member := range strings.SplitSeq(value, ",") {
			name, weight, ok := parseMember(member)
			if !ok {
				continue
			}
			if name == "*" {
				wildcardWeight = max(wildcardWeight, weight)
			} else if c, supported := ParseCoding(name); supported {
				weights[c] = max(weights[c], weight)
			}
		}
	}
	best, bestWeight := Identity, 0
	for _, c := range offered {
		weight := weights[c]
		if weight == unspecifiedWeight {
			weight = wildcardWeight
		}
		if weight > bestWeight {
			best, bestWeight = c, weight
		}
	}
	if weights[Identity] > bestWeight {
		return Identity
	}
	return best
}

// parseMember splits a member of Accept-Encoding into its name and its weight in thousandths (RFC
// 9110 12.4.2). ok is false if the member is malformed.
func parseMember(member string) (name string, weight int, ok bool) {
	name, parameter, found := strings.Cut(member, ";")
	name = strings.Trim(name, " \t")
	if !found {
		return name, 1000, name != ""
	}
	parameter = strings.Trim(parameter, " \t")
	if len(parameter) < 3 || parameter[0]|0x20 != 'q' || parameter[1] != '=' {
		return "", 0, false
	}
	weight, ok = parseQValue(parameter[2:])
	return name, weight, ok && name != ""
}

// parseQValue parses a qvalue, 0 or 1 with at most three digits after the point, and returns it in
// thousandths.
func parseQValue(s string) (int, bool) {
	if len(s) > len("0.000") || s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0, false
	}
	n := int(s[0] - '0')
	for i := 2; i < len("0.000"); i++ {
		digit := byte('0')
		if i < len(s) {
			digit = s[i]
		}
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = n*10 + int(digit-'0')
	}
	return n, n <= 1000
}

// hasListMember reports whether the header field, a comma-separated list, has the member want,
// case-insensitively. It ignores the value of a member in the form name=value.
func hasListMember(h *protocol.Header, field, want string) bool {
	for name, value := range h.All() {
		if !protocol.EqualFold(name, field) {
			continue
		}
		for member := range strings.SplitSeq(value, ",") {
			member, _, _ = strings.Cut(member, "=")
			if protocol.EqualFold(strings.Trim(member, " \t"), want) {
				return true
			}
		}
	}
	return false
}
