// Package detect detects the protocol of a connection from its first bytes: the server name and the
// ALPN protocols of a TLS ClientHello, and the version of HTTP in plaintext. It does no I/O.
package detect

import (
	"errors"
	"strings"
)

// ClientHello holds the inspected extensions of a ClientHello (RFC 8446 4.1.2).
type ClientHello struct {
	ServerName string   // SNI (RFC 6066 3), in lower case; "" for none
	Protocols  []string // ALPN (RFC 7301 3.1), in the client's order of preference
}

// MaxHello is the maximum size of a ClientHello with its record headers, in bytes.
const MaxHello = 64 << 10

// Errors of HelloParser.Parse.
var (
	// ErrNotTLS means that the connection does not begin with a TLS handshake.
	ErrNotTLS = errors.New("detect: not a TLS handshake")
	// ErrMalformed means that the handshake is malformed. The caller must not guess a server name.
	ErrMalformed = errors.New("detect: malformed ClientHello")
	// ErrTooLarge means that the ClientHello is larger than MaxHello.
	ErrTooLarge = errors.New("detect: ClientHello above 64 KiB")
)

// Values and sizes in TLS records, messages and extensions (RFC 8446 5.1, 4).
const (
	recordHandshake     = 22
	messageClientHello  = 1
	recordHeaderLen     = 5
	messageHeaderLen    = 4
	maxRecord           = 16<<10 + 256 // RFC 8446 5.1, with the expansion of an encrypted record (5.2)
	extensionServerName = 0
	extensionALPN       = 16
	nameTypeHost        = 0
	versionLimit        = 0x10 // exceeds every major version; the minor version is ignored (RFC 8446 5.1)
	recordAlert         = 21
)

// HelloParser parses the ClientHello at the beginning of a connection, however it is split into
// records and reads. The zero value is ready to use.
type HelloParser struct {
	next   int    // offset of the next record
	body   []byte // the part of the message received so far, if it spans several records
	length int    // length of the message; 0: not yet received
}

// Parse parses b, which holds all bytes received so far, and continues where the previous call
// stopped. done reports that the ClientHello is complete. If done is false without an error, more
// bytes are needed. The total work of all calls is proportional to the number of bytes. The errors
// ErrNotTLS, ErrMalformed and ErrTooLarge are final.
func (p *HelloParser) Parse(b []byte) (h ClientHello, done bool, err error) {
	if p.next == 0 {
		if err := checkFirstBytes(b); err != nil || len(b) == 0 {
			return h, false, err
		}
	}
	for {
		record, err := p.record(b)
		if record == nil || err != nil {
			if err == nil && len(b) >= MaxHello {
				err = ErrTooLarge
			}
			return h, false, err
		}
		if p.next += recordHeaderLen + len(record); p.next > MaxHello {
			return h, false, ErrTooLarge
		}
		message := record
		if p.body != nil || !p.complete(record) {
			p.body = append(p.body, record...)
			message = p.body
		}
		if p.complete(message) {
			h, err = parseHello(message[messageHeaderLen:p.length])
			return h, err == nil, err
		}
		if err := p.checkMessageHeader(message); err != nil {
			return h, false, err
		}
	}
}

// checkFirstBytes returns an error if b is not the start of a handshake. The first record contains
// at least the type of the message (RFC 8446 5.1), so six bytes suffice. A connection cannot begin
// with an alert, but some TLS servers skip one. So an alert is ErrMalformed and not ErrNotTLS: the
// caller must not treat the bytes after it as plaintext.
func checkFirstBytes(b []byte) error {
	has := func(index int) bool { return len(b) > index }
	length := 0
	if has(4) {
		length = int(b[3])<<8 | int(b[4])
	}
	switch {
	case has(0) && b[0] != recordHandshake && b[0] != recordAlert,
		has(1) && b[1] >= versionLimit,
		has(4) && (length == 0 || length > maxRecord):
		return ErrNotTLS
	case has(4) && b[0] == recordAlert && length == 2:
		return ErrMalformed
	case has(4) && b[0] == recordAlert,
		has(5) && b[5] != messageClientHello:
		return ErrNotTLS
	}
	return nil
}

// record returns the content of the record at p.next, or nil if the record is incomplete.
func (p *HelloParser) record(b []byte) ([]byte, error) {
	b = b[p.next:]
	if len(b) < recordHeaderLen {
		return nil, nil
	}
	n := int(b[3])<<8 | int(b[4])
	if b[0] != recordHandshake || b[1] >= versionLimit || n == 0 || n > maxRecord {
		return nil, ErrMalformed // records of other types must not interleave (RFC 8446 5.1)
	}
	if len(b) < recordHeaderLen+n {
		return nil, nil
	}
	return b[recordHeaderLen : recordHeaderLen+n], nil
}

// complete reports whether m contains a complete message. It records the length of the message once
// its header is complete.
func (p *HelloParser) complete(m []byte) bool {
	if p.length == 0 && len(m) >= messageHeaderLen {
		p.length = messageHeaderLen + (int(m[1])<<16 | int(m[2])<<8 | int(m[3]))
	}
	return p.length > 0 && len(m) >= p.length
}

// checkMessageHeader returns an error if the message m is not a ClientHello or exceeds MaxHello.
func (p *HelloParser) checkMessageHeader(m []byte) error {
	switch {
	case m[0] != messageClientHello:
		return ErrMalformed
	case p.length > MaxHello:
		return ErrTooLarge
	}
	return nil
}

// reader reads the fields of a message. After a truncated field, all further fields are empty.
type reader struct {
	b         []byte
	truncated bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.b, r.truncated = nil, true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// readNumber reads a big-endian number of size bytes.
func (r *reader) readNumber(size int) (n int) {
	for _, c := range r.take(size) {
		n = n<<8 | int(c)
	}
	return n
}

// readVector reads a vector whose length is a number of size bytes.
func (r *reader) readVector(size int) reader {
	return reader{b: r.take(r.readNumber(size)), truncated: r.truncated}
}

// parseHello parses the body of a ClientHello (RFC 8446 4.1.2).
func parseHello(body []byte) (h ClientHello, err error) {
	r := reader{b: body}
	r.take(2 + 32)  // version, random
	r.readVector(1) // session ID
	ciphers := r.readVector(2)
	compression := r.readVector(1)
	if r.truncated || len(ciphers.b)%2 != 0 || len(compression.b) == 0 {
		return h, ErrMalformed
	}
	if len(r.b) == 0 {
		return h, nil // extensions are optional in TLS 1.2 (RFC 5246 7.4.1.2)
	}
	extensions := r.readVector(2)
	if r.truncated || len(r.b) > 0 {
		return h, ErrMalformed
	}
	seen := map[int]bool{}
	for len(extensions.b) > 0 {
		extension := extensions.readNumber(2)
		data := extensions.readVector(2)
		if extensions.truncated || seen[extension] { // RFC 8446 4.2
			return ClientHello{}, ErrMalformed
		}
		seen[extension] = true
		switch extension {
		case extensionServerName:
			h.ServerName, err = readServerName(data)
		case extensionALPN:
			h.Protocols, err = readProtocols(data)
		}
		if err != nil {
			return ClientHello{}, err
		}
	}
	return h, nil
}

// readServerName reads the list of server names. Only host names are defined (RFC 6066 3).
func readServerName(data reader) (name string, err error) {
	names := data.readVector(2)
	if data.truncated || len(data.b) > 0 || len(names.b) == 0 {
		return "", ErrMalformed
	}
	for len(names.b) > 0 {
		nameType := names.readNumber(1)
		value := names.readVector(2)
		switch {
		case names.truncated || len(value.b) == 0:
			return "", ErrMalformed
		case nameType != nameTypeHost:
			continue
		case name != "" || value.b[len(value.b)-1] == '.':
			return "", ErrMalformed // at most one name per type, without a trailing dot
		}
		name = strings.ToLower(string(value.b))
	}
	return name, nil
}

func readProtocols(data reader) (list []string, err error) {
	names := data.readVector(2)
	if data.truncated || len(data.b) > 0 || len(names.b) == 0 {
		return nil, ErrMalformed
	}
	for len(names.b) > 0 {
		value := names.readVector(1)
		if names.truncated || len(value.b) == 0 {
			return nil, ErrMalformed
		}
		list = append(list, string(value.b))
	}
	return list, nil
}
