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

	protocolVersion = "2.0.2"
	requestHead     = "\xda\xbb\xc2\x00" // a two-way request in Hessian 2
	headSize        = 16
	lengthAt        = 12
	statusAt        = 3
	serialization   = 0x1f // bits of the third byte
	inHessian       = 2
	statusOK        = 20
	callID          = 1
)

var (
	errAnswer    = errors.New("invalid response")
	errException = errors.New("the instance returned an exception")
	errNull      = errors.New("the instance no longer has that revision")
)

// call requests a revision, and returns the body of the response.
func call(conn io.ReadWriter, application, version, revision string) ([]byte, error) {
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
		size := binary.BigEndian.Uint32(head[lengthAt:])
		if size > MaxMetadata {
			return nil, fmt.Errorf("%w: it has %d bytes; the maximum is %d", errAnswer, size, MaxMetadata)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		switch {
		case frame.Kind != xprotocol.Response || binary.BigEndian.Uint64(head[4:]) != callID:
			continue // a heartbeat; no response is needed before ours arrives
		case head[2]&serialization != inHessian:
			return nil, fmt.Errorf("%w: it is not encoded in Hessian 2", errAnswer)
		case head[statusAt] != statusOK:
			return nil, fmt.Errorf("%w: its status is %d", errAnswer, head[statusAt])
		}
		return body, nil
	}
}

func appendRequest(dst []byte, application, version, revision string) []byte {
	start := len(dst)
	dst = append(dst, requestHead...)
	dst = binary.BigEndian.AppendUint64(dst, callID)
	dst = append(dst, 0, 0, 0, 0)
	for _, text := range [...]string{protocolVersion, metadataService, version, metadataMethod, metadataTypes, revision} {
		dst = hessian.AppendString(dst, text)
	}
	dst = hessian.AppendMapStart(dst)
	for _, one := range [...][2]string{{"path", metadataService}, {"interface", metadataService}, {"version", version}, {"group", application}} {
		dst = hessian.AppendString(hessian.AppendString(dst, one[0]), one[1])
	}
	dst = hessian.AppendMapEnd(dst)
	binary.BigEndian.PutUint32(dst[start+lengthAt:], uint32(len(dst)-start-headSize))
	return dst
}

// The kinds of results. Kinds with attachments are larger by attached.
const (
	resultException = iota
	resultValue
	resultNull
	attached
)

// parseAnswer parses the body of a response.
func parseAnswer(body []byte) (*MetadataInfo, error) {
	r := &reader{body: body}
	kind, err := r.read(0)
	if err != nil {
		return nil, err
	}
	n, ok := kind.(int64)
	if ok && n >= attached {
		n -= attached
	}
	switch {
	case !ok || n < 0 || n > resultNull:
		return nil, fmt.Errorf("%w: it has no valid result type", errAnswer)
	case n == resultNull:
		return nil, errNull
	}
	value, err := r.read(0)
	if err != nil {
		return nil, err
	}
	m, ok := value.(map[string]any)
	switch {
	case n == resultException:
		text, _ := m["detailMessage"].(string)
		return nil, fmt.Errorf("%w: %q", errException, text)
	case value == nil:
		return nil, errNull
	case !ok:
		return nil, fmt.Errorf("%w: the result is not an object", errAnswer)
	}
	return fromObject(m)
}

// fromObject converts a MetadataInfo that was sent as an object.
func fromObject(m map[string]any) (*MetadataInfo, error) {
	raw, ok := m["services"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: there is no map of services", errNoServices)
	}
	application, _ := m["app"].(string)
	all := make(map[string]service, len(raw))
	for key, value := range raw {
		o, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%w: a service is not an object", errNoServices)
		}
		text := func(name string) string { s, _ := o[name].(string); return s }
		port, _ := o["port"].(int64)
		params, _ := o["params"].(map[string]any)
		s := service{Name: text("name"), Group: text("group"), Version: text("version"), Protocol: text("protocol"),
			Port: int(port), Path: text("path"), Params: make(map[string]string, len(params))}
		for name, value := range params {
			if v, ok := value.(string); ok {
				s.Params[name] = v
			}
		}
		all[key] = s
	}
	return newServices(application, all)
}
