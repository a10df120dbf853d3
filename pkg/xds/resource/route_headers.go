package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// ignoreRequestMutation ignores request header mutations of a redirect or direct response, which
// sends no request upstream.
func (p fieldReader) ignoreRequestMutation(request config.HeaderMutation) {
	if len(request.Add) > 0 {
		p.field("request_headers_to_add").ignore()
	}
	if len(request.Remove) > 0 {
		p.field("request_headers_to_remove").ignore()
	}
}

// readHeaderMutation reads the fields name+"_to_add" and name+"_to_remove".
func (p fieldReader) readHeaderMutation(name string, add []*corev3.HeaderValueOption, remove []string) (out config.HeaderMutation) {
	out.Remove = remove
	for i, h := range add {
		if v, ok := p.field(name + "_to_add").index(i).readHeaderOption(h); ok {
			out.Add = append(out.Add, v)
		}
	}
	return out
}

// readHeaderOption reads a header to add. ok is false if the header is ignored or rejected.
func (p fieldReader) readHeaderOption(h *corev3.HeaderValueOption) (v config.HeaderValue, ok bool) {
	if strings.Contains(h.GetHeader().GetValue(), "%START_TIME(") { // Contour sets such a header in each table
		p.ignore()
		return v, false
	}
	if len(h.GetHeader().GetRawValue()) > 0 {
		p.field("header").field("raw_value").ignore() // as in Envoy
	}
	value, ok := p.field("header").field("value").convertFormat(h.GetHeader().GetValue())
	if !ok {
		return v, false
	}
	v = config.HeaderValue{Name: h.GetHeader().GetKey(), Value: value}
	if v.Empty = config.EmptySkipped; h.GetKeepEmptyValue() {
		v.Empty = config.EmptyAlwaysAdded
	}
	switch h.GetAppendAction() {
	case corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		v.Append = boolOr(h.GetAppend(), true)
	case corev3.HeaderValueOption_ADD_IF_ABSENT:
		v.If = config.AddIfAbsent
	case corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
	case corev3.HeaderValueOption_OVERWRITE_IF_EXISTS:
		v.If = config.AddIfPresent
	default:
		p.field("append_action").reject("%v is not supported", h.GetAppendAction())
	}
	return v, true
}
