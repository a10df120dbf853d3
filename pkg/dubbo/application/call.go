package application

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/dubbo"
)

// The call that requests metadata from an instance.
const (
	metadataService = "org.apache.dubbo.metadata.MetadataService"
	metadataMethod  = "getMetadataInfo"
	metadataTypes   = "Ljava/lang/String;"

	protocolVersion       = "2.0.2"
	requestHead           = "\xda\xbb\xc2\x00" // a two-way request in Hessian 2
	headSize              = 16
	lengthOffset          = 12
	statusOffset          = 3
	serializationMask     = 0x1f // bits of the third byte
	serializationHessian2 = 2
	statusOK              = 20
	requestID             = 1
)

var (
	errResponse        = errors.New("invalid response")
	errException       = errors.New("the instance returned an exception")
	errUnknownRevision = errors.New("the instance no longer has that revision")
)

// requestMetadata requests a revision, and returns the body of the response.
func requestMetadata(conn io.ReadWriter, application, version, revision string) ([]byte, error) {
	if _, err := conn.Write(appendRequest(nil, application, version, revision)); err != nil {
		return nil, err
	}
	var codec dubbo.Codec
	for {
		head := make([]byte, headSize)
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, err
		}
		frame, err := codec.ParseFrame(head)
		if err != nil {
			return nil, err
		}
		size := binary.BigEndian.Uint32(head[lengthOffset:])
		if size > MaxMetadata {
			return nil, fmt.Errorf("%w: it has %d bytes; the maximum is %d", errResponse, size, MaxMetadata)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		switch {
		case frame.Kind != xprotocol.Response || binary.BigEndian.Uint64(head[4:]) != requestID:
			continue // a heartbeat; the connection closes before a response is due
		case head[2]&serializationMask != serializationHessian2:
			return nil, fmt.Errorf("%w: it is not encoded in Hessian 2", errResponse)
		case head[statusOffset] != statusOK:
			return nil, fmt.Errorf("%w: its status is %d", errResponse, head[statusOffset])
		}
		return body, nil
	}
}

func appendRequest(dst []byte, application, version, revision string) []byte {
	start := len(dst)
	dst = append(dst, requestHead...)
	dst = binary.BigEndian.AppendUint64(dst, requestID)
	dst = append(dst, 0, 0, 0, 0)
	for _, text := range [...]string{protocolVersion, metadataService, version, metadataMethod, metadataTypes, revision} {
		dst = hessian.AppendString(dst, text)
	}
	dst = hessian.AppendMapStart(dst)
	for _, attachment := range [...][2]string{{"path", metadataService}, {"interface", metadataService}, {"version", version}, {"group", application}} {
		dst = hessian.AppendString(hessian.AppendString(dst, attachment[0]), attachment[1])
	}
	dst = hessian.AppendMapEnd(dst)
	binary.BigEndian.PutUint32(dst[start+lengthOffset:], uint32(len(dst)-start-headSize))
	return dst
}

// The result types. withAttachments is added to the type of a result with attachments.
const (
	resultException = iota
	resultValue
	resultNull
	withAttachments
)

// parseResponse parses the body of a response.
func parseResponse(body []byte) (*MetadataInfo, error) {
	r := &hessianReader{body: body}
	resultType, err := r.readValue(0)
	if err != nil {
		return nil, err
	}
	n, ok := resultType.(int64)
	if ok && n >= withAttachments {
		n -= withAttachments
	}
	switch {
	case !ok || n < 0 || n > resultNull:
		return nil, fmt.Errorf("%w: it has no valid result type", errResponse)
	case n == resultNull:
		return nil, errUnknownRevision
	}
	value, err := r.readValue(0)
	if err != nil {
		return nil, err
	}
	m, ok := value.(map[string]any)
	switch {
	case n == resultException:
		text, _ := m["detailMessage"].(string)
		return nil, fmt.Errorf("%w: %q", errException, text)
	case value == nil:
		return nil, errUnknownRevision
	case !ok:
		return nil, fmt.Errorf("%w: the result is not an object", errResponse)
	}
	return metadataFromObject(m)
}

// metadataFromObject converts a MetadataInfo that was sent as an object.
func metadataFromObject(m map[string]any) (*MetadataInfo, error) {
	raw, ok := m["services"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: there is no map of services", errInvalidMetadata)
	}
	application, _ := m["app"].(string)
	services := make(map[string]service, len(raw))
	for key, value := range raw {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%w: a service is not an object", errInvalidMetadata)
		}
		text := func(name string) string { s, _ := fields[name].(string); return s }
		port, _ := fields["port"].(int64)
		params, _ := fields["params"].(map[string]any)
		s := service{Name: text("name"), Group: text("group"), Version: text("version"), Protocol: text("protocol"),
			Port: int(port), Path: text("path"), Params: make(map[string]string, len(params))}
		for name, value := range params {
			if v, ok := value.(string); ok {
				s.Params[name] = v
			}
		}
		services[key] = s
	}
	return newMetadataInfo(application, services)
}
