package extauthz

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The parts of the envoy.service.auth.v3 messages that the filter uses. Field numbers come from
// attribute_context.proto, external_auth.proto, envoy/config/core/v3/base.proto,
// google/rpc/status.proto and google/protobuf/struct.proto.

// attributes is an AttributeContext, which a gRPC service receives. Its strings must be valid
// UTF-8.
type attributes struct {
	source, destination peer
	time                time.Time
	http                httpRequest
	extensions          [][2]string // context_extensions
	serverName          string      // tls_session.sni
}

// peer is an AttributeContext.Peer.
type peer struct {
	address     string // address of a SocketAddress; "": none
	port        uint16
	principal   string
	certificate string
}

// httpRequest is an AttributeContext.HttpRequest.
type httpRequest struct {
	method, path, host, scheme, protocol string
	headers                              [][2]string // names are unique
	size                                 int64
	body                                 []byte
	raw                                  bool // send body as raw_body
}

// appendCheckRequest appends a CheckRequest.
func appendCheckRequest(b []byte, a *attributes) []byte {
	return appendMessage(b, 1, func(b []byte) []byte { return a.append(b) })
}

// appendMessage appends a field of message type with the content that fill appends.
func appendMessage(b []byte, number protowire.Number, fill func(b []byte) []byte) []byte {
	content := fill(nil)
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendBytes(b, content)
}

// appendText appends a string field, unless it is empty, which is the default.
func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// appendVarint appends a varint field, unless it is 0, which is the default.
func appendVarint(b []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.VarintType)
	return protowire.AppendVarint(b, n)
}

// appendEntries appends a field of type map<string, string>.
func appendEntries(b []byte, number protowire.Number, entries [][2]string) []byte {
	for _, e := range entries {
		b = appendMessage(b, number, func(b []byte) []byte { return appendText(appendText(b, 1, e[0]), 2, e[1]) })
	}
	return b
}

func (a *attributes) append(b []byte) []byte {
	b = appendMessage(b, 1, a.source.append)
	b = appendMessage(b, 2, a.destination.append)
	b = appendMessage(b, 4, func(b []byte) []byte {
		b = appendMessage(b, 1, func(b []byte) []byte {
			b = appendVarint(b, 1, uint64(max(a.time.Unix(), 0)))
			return appendVarint(b, 2, uint64(max(a.time.Nanosecond(), 0)))
		})
		return appendMessage(b, 2, a.http.append)
	})
	b = appendEntries(b, 10, a.extensions)
	if a.serverName != "" {
		b = appendMessage(b, 12, func(b []byte) []byte { return appendText(b, 1, a.serverName) })
	}
	return b
}

func (p *peer) append(b []byte) []byte {
	if p.address != "" {
		b = appendMessage(b, 1, func(b []byte) []byte { // Address
			return appendMessage(b, 1, func(b []byte) []byte { // SocketAddress; protocol is TCP by default
				b = appendText(b, 2, p.address)
				b = protowire.AppendTag(b, 3, protowire.VarintType) // port_value is in a oneof: write 0 too
				return protowire.AppendVarint(b, uint64(p.port))
			})
		})
	}
	b = appendText(b, 4, p.principal)
	return appendText(b, 5, p.certificate)
}

func (r *httpRequest) append(b []byte) []byte {
	b = appendText(b, 2, r.method)
	b = appendEntries(b, 3, r.headers)
	b = appendText(b, 4, r.path)
	b = appendText(b, 5, r.host)
	b = appendText(b, 6, r.scheme)
	b = appendVarint(b, 9, uint64(r.size))
	b = appendText(b, 10, r.protocol)
	if r.raw {
		return appendText(b, 12, string(r.body))
	}
	return appendText(b, 11, string(r.body))
}

// checkResponse is a CheckResponse.
type checkResponse struct {
	code             int32  // code of google.rpc.Status
	message          string // message of google.rpc.Status
	denied           *deniedResponse
	ok               *okResponse
	hasErrorResponse bool // the message has an error_response
	metadata         []metadataValue
}

// deniedResponse is a DeniedHttpResponse.
type deniedResponse struct {
	status  int // 0: not set
	headers []option
	body    string
}

// okResponse is an OkHttpResponse.
type okResponse struct {
	requestHeaders  []option // to change in the request
	remove          []string // names of request headers to remove
	responseHeaders []option // to add to the response to the client
	changesQuery    bool     // the message requests a change of the query
}

// option is a HeaderValueOption.
type option struct {
	name, value string
	append      *bool // deprecated field that overrides action; nil: not set
	action      int32
}

// metadataValue is a value of dynamic_metadata and its path in the struct.
type metadataValue struct {
	path  []string
	value string
}

// Limits of dynamic_metadata.
const (
	maxDepth          = 16   // maximum depth of nested structs, and of nested lists within one struct
	maxMetadataValues = 1000 // maximum number of values in one response
)

var errTruncated = errors.New("truncated message")

// parseFields calls field for each field of a message. content is set for a length-delimited field,
// and value for a varint or a 64-bit field. field must ignore numbers that it does not know.
func parseFields(b []byte, field func(number int, typ protowire.Type, content []byte, value uint64) error) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errTruncated
		}
		b = b[n:]
		var content []byte
		var value uint64
		switch typ {
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			value, n = protowire.ConsumeFixed64(b)
		default:
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 {
			return errTruncated
		}
		b = b[n:]
		if err := field(int(number), typ, content, value); err != nil {
			return err
		}
	}
	return nil
}

// errType reports a known field of the wrong type.
var errType = errors.New("a field has the wrong type")

// requireBytes returns an error unless typ is length-delimited.
func requireBytes(typ protowire.Type) error {
	if typ != protowire.BytesType {
		return errType
	}
	return nil
}

// requireVarint returns an error unless typ is a varint.
func requireVarint(typ protowire.Type) error {
	if typ != protowire.VarintType {
		return errType
	}
	return nil
}

func parseCheckResponse(b []byte) (*checkResponse, error) {
	r := new(checkResponse)
	err := parseFields(b, func(number int, typ protowire.Type, content []byte, _ uint64) error {
		if number > 5 {
			return nil
		}
		if err := requireBytes(typ); err != nil {
			return err
		}
		switch number {
		case 1:
			return r.parseStatus(content)
		case 2:
			if r.denied == nil {
				r.denied = new(deniedResponse)
			}
			return r.denied.parse(content)
		case 3:
			if r.ok == nil {
				r.ok = new(okResponse)
			}
			return r.ok.parse(content)
		case 4:
			return r.parseStruct(content, nil)
		case 5:
			r.hasErrorResponse = true
		}
		return nil
	})
	return r, err
}

func (r *checkResponse) parseStatus(b []byte) error {
	return parseFields(b, func(number int, typ protowire.Type, content []byte, value uint64) error {
		switch number {
		case 1:
			r.code = int32(value)
			return requireVarint(typ)
		case 2:
			r.message = string(content)
			return requireBytes(typ)
		}
		return nil
	})
}

func (d *deniedResponse) parse(b []byte) error {
	return parseFields(b, func(number int, typ protowire.Type, content []byte, _ uint64) error {
		if number > 3 {
			return nil
		}
		if err := requireBytes(typ); err != nil {
			return err
		}
		switch number {
		case 1:
			return parseFields(content, func(number int, typ protowire.Type, _ []byte, value uint64) error {
				if number != 1 {
					return nil
				}
				d.status = int(min(value, math.MaxInt32))
				return requireVarint(typ)
			})
		case 2:
			return appendOption(&d.headers, content)
		case 3:
			d.body = string(content)
		}
		return nil
	})
}

func (o *okResponse) parse(b []byte) error {
	return parseFields(b, func(number int, typ protowire.Type, content []byte, _ uint64) error {
		switch number {
		case 2, 5, 6, 7, 8:
			if err := requireBytes(typ); err != nil {
				return err
			}
		}
		switch number {
		case 2:
			return appendOption(&o.requestHeaders, content)
		case 5:
			o.remove = append(o.remove, string(content))
		case 6:
			return appendOption(&o.responseHeaders, content)
		case 7, 8:
			o.changesQuery = true
		}
		return nil
	})
}

func appendOption(dst *[]option, b []byte) error {
	var o option
	err := parseFields(b, func(number int, typ protowire.Type, content []byte, value uint64) error {
		switch number {
		case 1:
			if err := requireBytes(typ); err != nil {
				return err
			}
			return parseFields(content, func(number int, typ protowire.Type, content []byte, _ uint64) error {
				switch number {
				case 1:
					o.name = string(content)
				case 2, 3: // value, raw_value: at most one is set
					if len(content) > 0 {
						o.value = string(content)
					}
				default:
					return nil
				}
				return requireBytes(typ)
			})
		case 2: // a BoolValue
			appendValue := false
			if err := parseFields(content, func(number int, _ protowire.Type, _ []byte, value uint64) error {
				appendValue = number == 1 && value != 0
				return nil
			}); err != nil {
				return err
			}
			o.append = &appendValue
			return requireBytes(typ)
		case 3:
			o.action = int32(value)
			return requireVarint(typ)
		}
		return nil // keep_empty_value is ignored, as in Envoy's filter
	})
	*dst = append(*dst, o)
	return err
}

// parseStruct parses the google.protobuf.Struct at path.
func (r *checkResponse) parseStruct(b []byte, path []string) error {
	if len(path) >= maxDepth {
		return errors.New("dynamic_metadata is nested too deeply")
	}
	return parseFields(b, func(number int, typ protowire.Type, entry []byte, _ uint64) error {
		if number != 1 {
			return nil
		}
		if err := requireBytes(typ); err != nil {
			return err
		}
		var key string
		var value []byte
		if err := parseFields(entry, func(number int, typ protowire.Type, content []byte, _ uint64) error {
			switch number {
			case 1:
				key = string(content)
				return requireBytes(typ)
			case 2:
				value = content
				return requireBytes(typ)
			}
			return nil
		}); err != nil {
			return err
		}
		return r.parseValue(value, append(path[:len(path):len(path)], key), 0)
	})
}

// parseValue parses the google.protobuf.Value at path. listDepth is the number of lists
// between the innermost enclosing struct and the value.
func (r *checkResponse) parseValue(b []byte, path []string, listDepth int) error {
	add := func(text string) error {
		if len(r.metadata) >= maxMetadataValues {
			return errors.New("dynamic_metadata has too many values")
		}
		r.metadata = append(r.metadata, metadataValue{path, text})
		return nil
	}
	return parseFields(b, func(number int, typ protowire.Type, content []byte, value uint64) error {
		switch {
		case number == 2 && typ == protowire.Fixed64Type:
			return add(strconv.FormatFloat(math.Float64frombits(value), 'f', -1, 64))
		case number == 3 && typ == protowire.BytesType:
			return add(string(content))
		case number == 4 && typ == protowire.VarintType:
			return add(strconv.FormatBool(value != 0))
		case number == 5 && typ == protowire.BytesType:
			return r.parseStruct(content, path)
		case number == 6 && typ == protowire.BytesType:
			if listDepth >= maxDepth {
				return errors.New("dynamic_metadata is nested too deeply")
			}
			return parseFields(content, func(number int, typ protowire.Type, element []byte, _ uint64) error {
				if number != 1 {
					return nil
				}
				if err := requireBytes(typ); err != nil {
					return err
				}
				return r.parseValue(element, path, listDepth+1)
			})
		case number >= 2 && number <= 6:
			return fmt.Errorf("dynamic_metadata: %w", errType)
		}
		return nil
	})
}
