package dns

import (
	"context"
	"slices"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestOneFamilyFails verifies lookups of both families if one query fails. A host with both
// families must not temporarily have only IPv6 addresses, and servers that fail AAAA queries are
// common.
func TestOneFamilyFails(t *testing.T) {
	const four, six = "a.weft.test. 30 IN A 192.0.2.1", "a.weft.test. 30 IN AAAA 2001:db8::1"
	serverFailure := func(q *wire.Msg) *wire.Msg { return new(wire.Msg).SetRcode(q, wire.RcodeServerFailure) }
	for _, tt := range []struct {
		name   string
		family Family
		a      func(q *wire.Msg) *wire.Msg
		aaaa   func(q *wire.Msg) *wire.Msg
		want   []string // nil: the lookup fails
	}{
		{"both", Auto, responder(four), responder(six), []string{"192.0.2.1"}},
		{"A fails", Auto, serverFailure, responder(six), nil},
		{"A fails, IPv4 preferred", V4Preferred, serverFailure, responder(six), nil},
		{"AAAA fails", Auto, responder(four), serverFailure, []string{"192.0.2.1"}},
		{"AAAA fails, IPv4 preferred", V4Preferred, responder(four), serverFailure, []string{"192.0.2.1"}},
		{"no response to AAAA", Auto, responder(four), nil, []string{"192.0.2.1"}},
		{"no A record", Auto, responder(), responder(six), []string{"2001:db8::1"}},
		{"no A record, AAAA fails", Auto, responder(), serverFailure, nil},
		{"both fail", Auto, serverFailure, serverFailure, nil},
		{"All, AAAA fails", All, responder(four), serverFailure, []string{"192.0.2.1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := startUDPServer(t, func(q *wire.Msg) [][]byte {
				respond := tt.aaaa
				if q.Question[0].Qtype == wire.TypeA {
					respond = tt.a
				}
				if respond == nil {
					return nil
				}
				return [][]byte{pack(respond(q))}
			}, nil)
			addresses, _, err := System(&config.DNS{Resolvers: []string{address}, Timeout: time.Second}).Lookup(context.Background(), tt.family, "a.weft.test.")
			var got []string
			for _, a := range addresses {
				got = append(got, a.String())
			}
			if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
				t.Errorf("Lookup = %q, %v, want %q", got, err, tt.want)
			}
			if tt.want == nil && outcomeOf(err) != Failed {
				t.Errorf("outcome %d of %v, want Failed", outcomeOf(err), err)
			}
		})
	}
}

// responder returns a function that responds to a query with these records.
func responder(records ...string) func(q *wire.Msg) *wire.Msg {
	return func(q *wire.Msg) *wire.Msg { return reply(q, records...) }
}
