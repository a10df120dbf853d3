package resource

import (
	"slices"
	"strconv"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/weft-proxy/weft/pkg/config"
)

// readExchangeFilter reads the filter of an access log or of a local reply mapper. It returns nil
// if m is nil or rejected.
func (p fieldReader) readExchangeFilter(m *accesslogv3.AccessLogFilter) *config.ExchangeFilter {
	if m == nil {
		return nil
	}
	out := &config.ExchangeFilter{}
	reasons := len(p.report.reasons)
	switch f := m.GetFilterSpecifier().(type) {
	case *accesslogv3.AccessLogFilter_StatusCodeFilter:
		out.Status = p.field("status_code_filter").field("comparison").readComparison(f.StatusCodeFilter.GetComparison())
	case *accesslogv3.AccessLogFilter_DurationFilter:
		out.Duration = p.field("duration_filter").field("comparison").readComparison(f.DurationFilter.GetComparison())
	case *accesslogv3.AccessLogFilter_NotHealthCheckFilter:
		out.NotHealthCheck = true
	case *accesslogv3.AccessLogFilter_RuntimeFilter:
		out.Sample = p.field("runtime_filter").readSample(f.RuntimeFilter)
	case *accesslogv3.AccessLogFilter_AndFilter:
		out.All = p.field("and_filter").field("filters").readExchangeFilters(f.AndFilter.GetFilters())
	case *accesslogv3.AccessLogFilter_OrFilter:
		out.Any = p.field("or_filter").field("filters").readExchangeFilters(f.OrFilter.GetFilters())
	case *accesslogv3.AccessLogFilter_HeaderFilter:
		at := p.field("header_filter").field("header")
		if f.HeaderFilter.GetHeader().GetName() == "" {
			at.field("name").reject("is required")
			return nil
		}
		header := at.readHeader(f.HeaderFilter.GetHeader())
		out.Header = &header
	case *accesslogv3.AccessLogFilter_ResponseFlagFilter:
		out.Flags = p.field("response_flag_filter").readFlagFilter(f.ResponseFlagFilter)
	case *accesslogv3.AccessLogFilter_GrpcStatusFilter:
		out.GRPCStatus = p.field("grpc_status_filter").readGRPCStatusFilter(f.GrpcStatusFilter)
	case *accesslogv3.AccessLogFilter_MetadataFilter:
		out.Metadata = p.field("metadata_filter").readMetadataFilter(f.MetadataFilter)
	case *accesslogv3.AccessLogFilter_LogTypeFilter:
		out.LogTypes = p.field("log_type_filter").readLogTypeFilter(f.LogTypeFilter)
	case *accesslogv3.AccessLogFilter_TraceableFilter:
		p.field("traceable_filter").reject("is not supported: Weft does not trace requests")
	case *accesslogv3.AccessLogFilter_ExtensionFilter:
		p.field("extension_filter").reject("%s (%s) is not supported", f.ExtensionFilter.GetName(), f.ExtensionFilter.GetTypedConfig().GetTypeUrl())
	default:
		p.rejectOneof(m, "filter_specifier", "status_code_filter", "duration_filter", "not_health_check_filter", "runtime_filter", "and_filter",
			"or_filter", "header_filter", "response_flag_filter", "grpc_status_filter", "metadata_filter", "log_type_filter")
	}
	if len(p.report.reasons) > reasons {
		return nil
	}
	return out
}

// readExchangeFilters reads the filters of a conjunction or disjunction.
func (p fieldReader) readExchangeFilters(list []*accesslogv3.AccessLogFilter) []config.ExchangeFilter {
	if len(list) < 2 {
		p.reject("has %d filters, expected at least 2", len(list))
	}
	out := make([]config.ExchangeFilter, 0, len(list))
	for i, m := range list {
		if f := p.index(i).readExchangeFilter(m); f != nil {
			out = append(out, *f)
		}
	}
	return out
}

func (p fieldReader) readComparison(m *accesslogv3.ComparisonFilter) *config.Comparison {
	if m.GetValue() == nil {
		p.field("value").reject("is required")
		return nil
	}
	key := m.GetValue().GetRuntimeKey()
	if key == "" {
		p.field("value").field("runtime_key").reject("is required")
	}
	out := &config.Comparison{Value: p.runtimeUint32(key, m.GetValue().GetDefaultValue())}
	switch m.GetOp() {
	case accesslogv3.ComparisonFilter_EQ:
		out.Op = config.EqualTo
	case accesslogv3.ComparisonFilter_GE:
		out.Op = config.AtLeast
	case accesslogv3.ComparisonFilter_LE:
		out.Op = config.AtMost
	case accesslogv3.ComparisonFilter_NE:
		out.Op = config.NotEqualTo
	default:
		p.field("op").reject("%v is not supported", m.GetOp())
	}
	return out
}

func (p fieldReader) readSample(m *accesslogv3.RuntimeFilter) *config.SampleFilter {
	if m.GetRuntimeKey() == "" {
		p.field("runtime_key").reject("is required")
	}
	fraction := p.runtimeFraction(m.GetRuntimeKey(), m.GetPercentSampled())
	return &config.SampleFilter{
		PerMillion:  p.field("percent_sampled").readFractionPerMillion(fraction),
		ByRequestID: !m.GetUseIndependentRandomness(),
	}
}

func (p fieldReader) readFlagFilter(m *accesslogv3.ResponseFlagFilter) *config.FlagFilter {
	for i, flag := range m.GetFlags() {
		if !slices.Contains(responseFlags(), flag) {
			p.field("flags").index(i).reject("%q is not a response flag", flag)
		}
	}
	return &config.FlagFilter{Flags: m.GetFlags()}
}

// responseFlags returns Envoy's response flags.
func responseFlags() []string {
	return []string{
		"LH", "UH", "UT", "LR", "UR", "UF", "UC", "UO", "NR", "DI", "FI", "RL", "UAEX", "RLSE", "DC", "URX", "SI", "IH", "DPE",
		"UMSDR", "RFCF", "NFCF", "DT", "UPE", "NC", "OM", "DF", "DO", "DR", "UDO",
	}
}

func (p fieldReader) readGRPCStatusFilter(m *accesslogv3.GrpcStatusFilter) *config.GRPCStatusFilter {
	out := &config.GRPCStatusFilter{Exclude: m.GetExclude()}
	for i, status := range m.GetStatuses() {
		if _, ok := accesslogv3.GrpcStatusFilter_Status_name[int32(status)]; !ok {
			p.field("statuses").index(i).reject("%d is not a gRPC status", status)
		}
		out.Statuses = append(out.Statuses, int(status))
	}
	return out
}

func (p fieldReader) readLogTypeFilter(m *accesslogv3.LogTypeFilter) *config.LogTypeFilter {
	out := &config.LogTypeFilter{Exclude: m.GetExclude()}
	for i, t := range m.GetTypes() {
		name, ok := dataaccesslogv3.AccessLogType_name[int32(t)]
		if !ok {
			p.field("types").index(i).reject("%d is not a type of access log", t)
			continue
		}
		out.Types = append(out.Types, name)
	}
	return out
}

func (p fieldReader) readMetadataFilter(m *accesslogv3.MetadataFilter) *config.MetadataFilter {
	matcher := m.GetMatcher()
	out := &config.MetadataFilter{
		Namespace: matcher.GetFilter(), Invert: matcher.GetInvert(), MatchIfMissing: boolOr(m.GetMatchIfKeyNotFound(), true),
	}
	if matcher == nil { // only presence matters
		out.Matcher, out.Invert = config.ValueMatch{Kind: config.ValuePresent}, true
		return out
	}
	at := p.field("matcher")
	if out.Namespace == "" {
		at.field("filter").reject("is required")
	}
	if len(matcher.GetPath()) == 0 {
		at.field("path").reject("is empty")
	}
	for i, segment := range matcher.GetPath() {
		if segment.GetKey() == "" {
			at.field("path").index(i).field("key").reject("is required")
		}
		out.Path = append(out.Path, segment.GetKey())
	}
	at.field("value").readMetadataValue(matcher.GetValue(), &out.Matcher)
	return out
}

// readMetadataValue reads a condition on a metadata value, which Weft stores as text.
func (p fieldReader) readMetadataValue(m *matcherv3.ValueMatcher, out *config.ValueMatch) {
	switch v := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		p.field("string_match").readStringMatcher(v.StringMatch, out)
	case *matcherv3.ValueMatcher_BoolMatch:
		*out = config.ValueMatch{Kind: config.ValueExact, Text: strconv.FormatBool(v.BoolMatch)}
	case *matcherv3.ValueMatcher_PresentMatch:
		*out = config.ValueMatch{Kind: config.ValuePresent, Invert: !v.PresentMatch}
	case *matcherv3.ValueMatcher_DoubleMatch:
		exact, ok := v.DoubleMatch.GetMatchPattern().(*matcherv3.DoubleMatcher_Exact)
		if !ok {
			p.field("double_match").field("range").rejectUnsupported()
			return
		}
		*out = config.ValueMatch{Kind: config.ValueExact, Text: strconv.FormatFloat(exact.Exact, 'f', -1, 64)}
	default:
		p.rejectOneof(m, "match_pattern", "string_match", "bool_match", "present_match", "double_match")
	}
}
