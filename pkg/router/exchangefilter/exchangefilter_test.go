package exchangefilter

import (
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// exchange returns an exchange with a response with the status 200 after 30 ms.
func exchange(change func(x *protocol.Exchange)) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Request.Method, x.Request.Path = "GET", "/a?b"
	x.Response.Status = 200
	x.Meta.Start = time.Unix(1000, 0)
	x.Record.End = x.Meta.Start.Add(30 * time.Millisecond)
	if change != nil {
		change(x)
	}
	return x
}

func status(op config.ComparisonOp, value uint32) config.ExchangeFilter {
	return config.ExchangeFilter{Status: &config.Comparison{Op: op, Value: value}}
}

func TestMatches(t *testing.T) {
	id := func(id string) func(*protocol.Exchange) {
		return func(x *protocol.Exchange) { x.Request.Header.Add("X-Request-Id", id) }
	}
	metadata := func(value string) func(*protocol.Exchange) {
		return func(x *protocol.Exchange) { x.Metadata.Set("n", protocol.MetadataKey("a", "b"), value) }
	}
	isX := config.MetadataFilter{Namespace: "n", Path: []string{"a", "b"}, Matcher: config.ValueMatch{Text: "x"}}
	missingMatches := isX
	missingMatches.MatchIfMissing = true
	inverted := isX
	inverted.Invert = true
	for _, c := range []struct {
		name   string
		filter config.ExchangeFilter
		change func(x *protocol.Exchange)
		want   bool
	}{
		{"equal status", status(config.EqualTo, 200), nil, true},
		{"other status", status(config.EqualTo, 201), nil, false},
		{"not equal", status(config.NotEqualTo, 201), nil, true},
		{"at least", status(config.AtLeast, 200), nil, true},
		{"below at least", status(config.AtLeast, 201), nil, false},
		{"at most", status(config.AtMost, 200), nil, true},
		{"above at most", status(config.AtMost, 199), nil, false},
		{"no status is 0", status(config.EqualTo, 0), func(x *protocol.Exchange) { x.Response.Status = 0 }, true},
		{"duration", config.ExchangeFilter{Duration: &config.Comparison{Op: config.AtLeast, Value: 30}}, nil, true},
		{"short duration", config.ExchangeFilter{Duration: &config.Comparison{Op: config.AtLeast, Value: 31}}, nil, false},
		{"duration until now", config.ExchangeFilter{Duration: &config.Comparison{Op: config.EqualTo, Value: 2000}},
			func(x *protocol.Exchange) { x.Record.End = time.Time{} }, true},
		{"all", config.ExchangeFilter{All: []config.ExchangeFilter{status(config.AtLeast, 200), status(config.AtMost, 299)}}, nil, true},
		{"not all", config.ExchangeFilter{All: []config.ExchangeFilter{status(config.AtLeast, 200), status(config.AtLeast, 300)}}, nil, false},
		{"any", config.ExchangeFilter{Any: []config.ExchangeFilter{status(config.AtLeast, 500), status(config.AtLeast, 200)}}, nil, true},
		{"none", config.ExchangeFilter{Any: []config.ExchangeFilter{status(config.AtLeast, 500), status(config.AtLeast, 300)}}, nil, false},
		{"header", config.ExchangeFilter{Header: &config.HeaderMatch{Name: ":path", Matcher: &config.ValueMatch{Text: "/a?b"}}}, nil, true},
		{"any flag", config.ExchangeFilter{Flags: &config.FlagFilter{}}, func(x *protocol.Exchange) { x.Record.Flags = protocol.DelayInjected }, true},
		{"no flag", config.ExchangeFilter{Flags: &config.FlagFilter{}}, nil, false},
		{"one of the flags", config.ExchangeFilter{Flags: &config.FlagFilter{Flags: []string{"NR", "UT"}}}, func(x *protocol.Exchange) {
			x.Record.Flags, x.Record.Reason = protocol.DelayInjected, protocol.UpstreamTimeout
		}, true},
		{"other flag", config.ExchangeFilter{Flags: &config.FlagFilter{Flags: []string{"NR"}}},
			func(x *protocol.Exchange) { x.Record.Reason = protocol.UpstreamTimeout }, false},
		{"grpc status", config.ExchangeFilter{GRPCStatus: &config.GRPCStatusFilter{Statuses: []int{5}}},
			func(x *protocol.Exchange) { x.Response.Trailer.Add("grpc-status", "5") }, true},
		{"grpc status of an HTTP status", config.ExchangeFilter{GRPCStatus: &config.GRPCStatusFilter{Statuses: []int{14}}},
			func(x *protocol.Exchange) { x.Response.Status = 503 }, true},
		{"grpc status without a response", config.ExchangeFilter{GRPCStatus: &config.GRPCStatusFilter{Statuses: []int{2}}},
			func(x *protocol.Exchange) { x.Response.Status = 0 }, true},
		{"excluded grpc status", config.ExchangeFilter{GRPCStatus: &config.GRPCStatusFilter{Statuses: []int{0}, Exclude: true}},
			func(x *protocol.Exchange) { x.Response.Header.Add("grpc-status", "0") }, false},
		{"metadata", config.ExchangeFilter{Metadata: &isX}, metadata("x"), true},
		{"other metadata", config.ExchangeFilter{Metadata: &missingMatches}, metadata("y"), false},
		{"inverted metadata", config.ExchangeFilter{Metadata: &inverted}, metadata("y"), true},
		{"missing metadata", config.ExchangeFilter{Metadata: &isX}, nil, false},
		{"missing metadata matches", config.ExchangeFilter{Metadata: &missingMatches}, nil, true},
		{"log type", config.ExchangeFilter{LogTypes: &config.LogTypeFilter{Types: []string{"DownstreamEnd"}}},
			func(x *protocol.Exchange) { x.Record.LogType = protocol.LogDownstreamEnd }, true},
		{"excluded log type", config.ExchangeFilter{LogTypes: &config.LogTypeFilter{Types: []string{"DownstreamEnd"}, Exclude: true}},
			func(x *protocol.Exchange) { x.Record.LogType = protocol.LogDownstreamEnd }, false},
		{"no health check", config.ExchangeFilter{NotHealthCheck: true}, nil, true},
		{"health check", config.ExchangeFilter{NotHealthCheck: true}, func(x *protocol.Exchange) { x.Record.HealthCheck = true }, false},
		{"sample", config.ExchangeFilter{Sample: &config.SampleFilter{PerMillion: 8}}, nil, true}, // the random number is 7
		{"not in the sample", config.ExchangeFilter{Sample: &config.SampleFilter{PerMillion: 7}}, nil, false},
		{"sample by ID", config.ExchangeFilter{Sample: &config.SampleFilter{PerMillion: 17, ByRequestID: true}},
			id("00000010-0000-4000-8000-000000000000"), true},
		{"not in the sample by ID", config.ExchangeFilter{Sample: &config.SampleFilter{PerMillion: 16, ByRequestID: true}},
			id("00000010-0000-4000-8000-000000000000"), false},
		{"no UUID", config.ExchangeFilter{Sample: &config.SampleFilter{PerMillion: 8, ByRequestID: true}}, id("10"), true},
	} {
		f, err := Compile(&c.filter, Env{
			Now:    func() time.Time { return time.Unix(1002, 0) },
			Random: func() uint64 { return 7 + 3*config.Millionths },
		})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := f.Matches(exchange(c.change)); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}

func TestNilMatchesEverything(t *testing.T) {
	f, err := Compile(nil, Env{})
	if err != nil || !f.Matches(exchange(nil)) {
		t.Errorf("Compile(nil) = %v, %v, want a filter that matches", f, err)
	}
}

func TestCompileRejects(t *testing.T) {
	for _, c := range []config.ExchangeFilter{
		{},
		{All: []config.ExchangeFilter{{}}},
		{Header: &config.HeaderMatch{Name: ":nothing"}},
		{Metadata: &config.MetadataFilter{Matcher: config.ValueMatch{Kind: config.ValueRegex, Text: "("}}},
		{LogTypes: &config.LogTypeFilter{Types: []string{"Never"}}},
	} {
		if _, err := Compile(&c, Env{}); err == nil {
			t.Errorf("Compile(%+v) returned no error", c)
		}
	}
}

func TestMatchesAllocatesNothing(t *testing.T) {
	f, err := Compile(&config.ExchangeFilter{All: []config.ExchangeFilter{
		status(config.AtLeast, 200), {Flags: &config.FlagFilter{Flags: []string{"UT"}}},
		{Header: &config.HeaderMatch{Name: "x-a", Matcher: &config.ValueMatch{Text: "b"}}},
	}}, Env{})
	if err != nil {
		t.Fatal(err)
	}
	x := exchange(func(x *protocol.Exchange) {
		x.Record.Reason = protocol.UpstreamTimeout
		x.Request.Header.Add("x-a", "b")
	})
	if n := testing.AllocsPerRun(100, func() { f.Matches(x) }); n != 0 {
		t.Errorf("Matches allocates %v times", n)
	}
}
