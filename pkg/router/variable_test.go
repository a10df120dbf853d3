package router

import (
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestVariableConditionsMatchEachHeader verifies that a condition on a request header variable
// matches if one of the header's values matches, like a header condition.
func TestVariableConditionsMatchEachHeader(t *testing.T) {
	http := func(headers ...string) *protocol.Exchange { return request("GET", "a.test", "/a", headers...) }
	dubbo := func(headers ...string) *protocol.Exchange {
		x := request("", "a.test", "/", headers...)
		x.Meta.Protocol = string(config.Dubbo)
		return x
	}
	tests := []struct {
		name      string
		x         *protocol.Exchange
		condition config.VariableMatch
		want      bool
	}{
		{"the first value", http("x-r", "admin", "x-r", "user"), config.VariableMatch{Name: "request_header_x-r", Value: "admin"}, true},
		{"a later value", http("x-r", "user", "X-R", "admin"), config.VariableMatch{Name: "request_header_x-r", Value: "admin"}, true},
		{"later value matches an expression", http("x-r", "user", "x-r", "admin"), config.VariableMatch{Name: "request_header_x-r", Value: "^adm", Regex: true}, true},
		{"values are not joined", http("x-r", "user", "x-r", "admin"), config.VariableMatch{Name: "request_header_x-r", Value: "user,admin"}, false},
		{"a later empty value", http("x-r", "user", "x-r", ""), config.VariableMatch{Name: "request_header_x-r", Value: ""}, true},
		{"no empty value", http("x-r", "user"), config.VariableMatch{Name: "request_header_x-r", Value: ""}, false},
		{"no header", http(), config.VariableMatch{Name: "request_header_x-r", Value: ""}, true},
		{"no header, expression", http(), config.VariableMatch{Name: "request_header_x-r", Value: "^$", Regex: true}, true},
		{"HTTP/1 name of the variable", http("x-r", "user", "x-r", "admin"), config.VariableMatch{Name: "Http1_request_header_x-r", Value: "admin"}, true},
		{"the request's ID", http("x-request-id", "1", "x-request-id", "2"), config.VariableMatch{Name: "request_id", Value: "2"}, true},
		{"header called service", http("service", "a", "service", "b"), config.VariableMatch{Name: "rpc_service", Value: "b"}, true},
		{"header called method", http("method", "a", "method", "b"), config.VariableMatch{Name: "Dubbo_method", Value: "b"}, true},
		{"the service of gRPC", request("POST", "a.test", "/pkg.S/m", "content-type", "application/grpc", "service", "b"),
			config.VariableMatch{Name: "rpc_service", Value: "b"}, false},
		{"an attachment", dubbo("service", "a", "tag", "gray", "tag", "blue"), config.VariableMatch{Name: "request_header_tag", Value: "blue"}, true},
		{"attachment called service", dubbo("service", "a", "service", "b"), config.VariableMatch{Name: "request_header_service", Value: "b"}, false},
		{"service of the call", dubbo("service", "a", "service", "b"), config.VariableMatch{Name: "rpc_service", Value: "b"}, false},
		{"version of the call", dubbo("version", "1", "version", "2"), config.VariableMatch{Name: "rpc_version", Value: "2"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := mustCompile(t, forward("r", config.RouteMatch{Variables: []config.VariableMatch{test.condition}}))
			if got := table.Match(test.x) != nil; got != test.want {
				t.Errorf("Match = %v, want %v", got, test.want)
			}
		})
	}
}

// TestVariableConditionsExplainEachHeader verifies that an explanation shows all values that the
// condition has tested.
func TestVariableConditionsExplainEachHeader(t *testing.T) {
	table := mustCompile(t, forward("r", config.RouteMatch{Variables: []config.VariableMatch{{Name: "request_header_x-r", Value: "admin"}}}))
	want := []string{`variable request_header_x-r is "user" and "guest", expected "admin"`}
	if got := table.Explain(request("GET", "a.test", "/", "x-r", "user", "x-r", "guest")).Routes[0].Reasons; !slices.Equal(got, want) {
		t.Errorf("reasons %q, want %q", got, want)
	}
}

func TestVariableConditionsOnHeadersDoNotAllocate(t *testing.T) {
	table := mustCompile(t, forward("r", config.RouteMatch{Variables: []config.VariableMatch{{Name: "request_header_x-r", Value: "admin"}}}))
	x := request("GET", "a.test", "/", "x-r", "user", "x-r", "admin")
	if n := testing.AllocsPerRun(100, func() { table.Match(x) }); n != 0 {
		t.Errorf("Match allocates %v times, want 0", n)
	}
}
