package router

import (
	"io"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// callBody is a body with one argument.
type callBody string

func (callBody) Read([]byte) (int, error) { return 0, io.EOF }
func (callBody) Buffered() int            { return 0 }
func (callBody) Close() error             { return nil }

func (c callBody) Argument(i int) (string, bool) { return string(c), i == 0 }

func TestMatchArguments(t *testing.T) {
	blue := config.ArgumentMatch{Index: 0, Matcher: config.ValueMatch{Kind: config.ValueExact, Text: "blue"}}
	second := config.ArgumentMatch{Index: 1, Matcher: config.ValueMatch{Kind: config.ValueRange, From: 1, To: 5}}
	table, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*config.Route{
		{Name: "second", Match: config.RouteMatch{Arguments: []config.ArgumentMatch{blue, second}}, DirectResponse: &config.DirectResponse{Status: 200}},
		{Name: "blue", Match: config.RouteMatch{Arguments: []config.ArgumentMatch{blue}}, DirectResponse: &config.DirectResponse{Status: 200}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		body    protocol.Body
		want    string // "": none
		reasons []string
	}{
		{callBody("blue"), "blue", nil},
		{callBody("red"), "", []string{`argument 0 is "red", expected "blue"`}},
		{nil, "", []string{`argument 0 is missing, expected "blue"`}},
	} {
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Authority, x.Request.Path, x.Request.Body = "a", "/", test.body
		got := ""
		if r := table.Match(x); r != nil {
			got = r.Config.Name
		}
		if got != test.want {
			t.Errorf("%v matches route %q, want %q", test.body, got, test.want)
		}
		if gotReasons := table.Explain(x).Routes[1].Reasons; !slices.Equal(gotReasons, test.reasons) {
			t.Errorf("%v: reasons %q, want %q", test.body, gotReasons, test.reasons)
		}
	}
	invalid := config.ArgumentMatch{Matcher: config.ValueMatch{Kind: config.ValueRegex, Text: "("}}
	if _, err := Compile(&config.RouteTable{Name: "t", VirtualHosts: []*config.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*config.Route{
		{Name: "bad", Match: config.RouteMatch{Arguments: []config.ArgumentMatch{invalid}}, DirectResponse: &config.DirectResponse{Status: 200}},
	}}}}); err == nil {
		t.Error("Compile accepted an invalid expression")
	}
}
