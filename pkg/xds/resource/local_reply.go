package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"encoding/json"
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// readLocalReplies reads how local replies are changed. m may be nil.
func (p fieldReader) readLocalReplies(m *hcmv3.LocalReplyConfig) config.Replies {
	out := config.Replies{Envoy: true}
	if m == nil {
		return out
	}
	p.checkFields(m, []string{"mappers", "body_format"}, nil)
	for i, mapper := range m.GetMappers() {
		out.Mappers = append(out.Mappers, p.field("mappers").index(i).readReplyMapper(mapper))
	}
	out.Body = p.field("body_format").readReplyBody(m.GetBodyFormat())
	return out
}

func (p fieldReader) readReplyMapper(m *hcmv3.ResponseMapper) (out config.ReplyMapper) {
	p.checkFields(m, []string{"filter", "status_code", "body", "body_format_override", "headers_to_add"}, nil)
	if filter := p.field("filter").readExchangeFilter(m.GetFilter()); filter != nil {
		out.Filter = *filter
	} else if m.GetFilter() == nil {
		p.field("filter").reject("is required")
	}
	if status := m.GetStatusCode(); status != nil {
		out.Status = int(status.GetValue())
		if out.Status < 200 || out.Status > 599 {
			p.field("status_code").reject("is %d, expected 200 to 599", out.Status)
		}
	}
	if body := m.GetBody(); body != nil {
		text := p.field("body").readReplyText(body)
		out.Text = &text
	}
	out.Body = p.field("body_format_override").readReplyBody(m.GetBodyFormatOverride())
	out.Headers = p.readHeaderMutation("headers", m.GetHeadersToAdd(), nil)
	return out
}

// readReplyText returns an inline text.
func (p fieldReader) readReplyText(m *corev3.DataSource) string {
	switch s := m.GetSpecifier().(type) {
	case *corev3.DataSource_InlineString:
		return s.InlineString
	case *corev3.DataSource_InlineBytes:
		return string(s.InlineBytes)
	case nil:
		p.rejectOneof(m, "specifier", "inline_string", "inline_bytes")
	default:
		p.reject("supports only inline_string and inline_bytes")
	}
	return ""
}

// readReplyBody reads the format of a body. It returns nil if m is nil.
func (p fieldReader) readReplyBody(m *corev3.SubstitutionFormatString) *config.ReplyBody {
	if m == nil {
		return nil
	}
	p.checkFields(m, []string{"text_format", "text_format_source", "json_format", "content_type", "omit_empty_values"}, []string{"formatters"})
	out := &config.ReplyBody{ContentType: m.GetContentType(), OmitMissing: m.GetOmitEmptyValues()}
	switch f := m.GetFormat().(type) {
	case *corev3.SubstitutionFormatString_TextFormat:
		out.Text = f.TextFormat
		p.field("text_format").checkOperators(out.Text)
	case *corev3.SubstitutionFormatString_TextFormatSource:
		out.Text = p.field("text_format_source").readReplyText(f.TextFormatSource)
		p.field("text_format_source").checkOperators(out.Text)
	case *corev3.SubstitutionFormatString_JsonFormat:
		b := jsonFormat{reader: p.field("json_format")}
		b.object(b.reader, f.JsonFormat)
		b.flush("")
		out.JSON = b.parts
	default:
		p.rejectOneof(m, "format", "text_format", "text_format_source", "json_format")
	}
	return out
}

// checkOperators rejects a format with an operator that Weft does not support.
func (p fieldReader) checkOperators(format string) {
	chain := ""
	o := variable.OperatorOptions{AppendUUID: func(dst []byte) []byte { return dst }, FilterChain: &chain, LocalReply: true}
	if _, err := variable.CompileOperators(format, o); err != nil {
		p.reject("%v", err)
	}
}

// jsonFormat converts a structure whose strings are formats to parts of a JSON document.
type jsonFormat struct {
	reader  fieldReader
	parts   []config.JSONPart
	literal []byte // JSON after the last part
}

// flush ends a part with a format.
func (b *jsonFormat) flush(format string) {
	b.parts = append(b.parts, config.JSONPart{Literal: string(b.literal), Format: format})
	b.literal = b.literal[:0]
}

// object appends the fields of m, sorted by name.
func (b *jsonFormat) object(at fieldReader, m *structpb.Struct) {
	b.literal = append(b.literal, '{')
	for i, name := range slices.Sorted(maps.Keys(m.GetFields())) {
		if i > 0 {
			b.literal = append(b.literal, ',')
		}
		b.appendLiteral(name)
		b.literal = append(b.literal, ':')
		b.value(at.key(name), m.GetFields()[name])
	}
	b.literal = append(b.literal, '}')
}

func (b *jsonFormat) value(at fieldReader, v *structpb.Value) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		at.checkOperators(k.StringValue)
		if k.StringValue == "" {
			b.appendLiteral("")
			return
		}
		b.flush(k.StringValue)
	case *structpb.Value_StructValue:
		b.object(at, k.StructValue)
	case *structpb.Value_ListValue:
		b.literal = append(b.literal, '[')
		for i, element := range k.ListValue.GetValues() {
			if i > 0 {
				b.literal = append(b.literal, ',')
			}
			b.value(at.index(i), element)
		}
		b.literal = append(b.literal, ']')
	default:
		b.appendLiteral(v.AsInterface())
	}
}

// appendLiteral appends a string, a number, a Boolean or null.
func (b *jsonFormat) appendLiteral(v any) {
	text, err := json.Marshal(v)
	if err != nil { // NaN or infinity, which JSON does not have
		b.reader.reject("%v", err)
	}
	b.literal = append(b.literal, text...)
}
