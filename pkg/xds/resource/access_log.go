package resource

//lint:file-ignore SA1019 control planes still set deprecated fields

import (
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weft-proxy/weft/pkg/config"
)

// readAccessLogs reads the access logs of a listener or a network filter.
func (p fieldReader) readAccessLogs(list []*accesslogv3.AccessLog) (out []config.AccessLog) {
	for i, l := range list {
		at := p.index(i)
		file, ok := at.field("typed_config").unpackFileLog(l.GetTypedConfig())
		if file == nil {
			if ok {
				at.key(l.GetName()).ignore()
			}
			continue
		}
		if l.GetFilter() != nil {
			at.field("filter").ignore()
		}
		log := config.AccessLog{Path: file.GetPath()}
		switch log.Path {
		case "/dev/stdout":
			log.Path = "stdout"
		case "/dev/stderr":
			log.Path = "stderr"
		case "":
			at.field("typed_config").field("path").reject("is missing")
		}
		at.field("typed_config").readLogFormat(file, &log)
		out = append(out, log)
	}
	return out
}

// unpackFileLog returns an access log to a file, stdout or stderr. If the logger has another type,
// log is nil and ok is true. If the logger is rejected, ok is false.
func (p fieldReader) unpackFileLog(packed *anypb.Any) (log *filev3.FileAccessLog, ok bool) {
	file, stdout, stderr := &filev3.FileAccessLog{}, &streamv3.StdoutAccessLog{}, &streamv3.StderrAccessLog{}
	streamLog := func(path string, format *corev3.SubstitutionFormatString) *filev3.FileAccessLog {
		out := &filev3.FileAccessLog{Path: path}
		if format != nil {
			out.AccessLogFormat = &filev3.FileAccessLog_LogFormat{LogFormat: format}
		}
		return out
	}
	switch {
	case isType(packed, file):
		if p.unpack(packed, file) {
			return file, true
		}
	case isType(packed, stdout):
		if p.unpack(packed, stdout) {
			return streamLog("/dev/stdout", stdout.GetLogFormat()), true
		}
	case isType(packed, stderr):
		if p.unpack(packed, stderr) {
			return streamLog("/dev/stderr", stderr.GetLogFormat()), true
		}
	default:
		return nil, true
	}
	return nil, false
}

func (p fieldReader) readLogFormat(file *filev3.FileAccessLog, out *config.AccessLog) {
	switch f := file.GetAccessLogFormat().(type) {
	case nil:
	case *filev3.FileAccessLog_LogFormat:
		p.field("log_format").checkFields(f.LogFormat, []string{"text_format_source", "text_format", "json_format"}, nil)
		switch f := f.LogFormat.GetFormat().(type) {
		case *corev3.SubstitutionFormatString_TextFormatSource:
			out.Format = p.field("log_format").convertLogFormat(f.TextFormatSource.GetInlineString())
		case *corev3.SubstitutionFormatString_TextFormat:
			out.Format = p.field("log_format").convertLogFormat(f.TextFormat)
		case *corev3.SubstitutionFormatString_JsonFormat:
			for _, name := range slices.Sorted(maps.Keys(f.JsonFormat.GetFields())) {
				text := f.JsonFormat.GetFields()[name].GetStringValue()
				out.JSON = append(out.JSON, config.LogField{Name: name, Format: p.field("log_format").field("json_format").key(name).convertLogFormat(text)})
			}
		}
	case *filev3.FileAccessLog_Format:
		out.Format = p.field("format").convertLogFormat(f.Format)
	default:
		p.ignore()
	}
}

// convertLogFormat is convertFormat for logs. It ignores each word that has an unsupported command,
// and writes "-" instead. Words are separated by spaces.
func (p fieldReader) convertLogFormat(text string) string {
	silent := fieldReader{&report{}, ""}
	var b strings.Builder
	for command := range strings.SplitAfterSeq(strings.TrimRight(text, "\n"), " ") {
		converted, ok := silent.convertFormat(command)
		if !ok {
			p.key(strings.TrimSpace(command)).ignore()
			converted = "- "
		}
		b.WriteString(converted)
	}
	return b.String()
}
