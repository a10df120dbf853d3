package explain

import (
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// byUser is a host chain that selects the host whose address is the attachment "user".
type byUser struct{}

func (byUser) Chain(map[string]string) config.HostChain { return byUser{} }
func (byUser) Len() int                                 { return 2 }

func (byUser) Select(call config.Call, hosts config.HostSet) {
	if user, ok := call.Attachment("user"); ok {
		hosts.Add(int(user[0] - 'a'))
	}
}

func (byUser) Allows(hosts config.HostSet, h *config.Host) bool {
	return hosts.Has(int(h.Address[0] - 'a'))
}

func TestRulesExcludeHosts(t *testing.T) {
	u := FromConfig(&config.Cluster{HostRules: byUser{}, Hosts: []config.Host{{Address: "a"}, {Address: "b"}}})
	x := &protocol.Exchange{}
	x.Request.Header.Add("user", "b")
	for _, tt := range []struct {
		x    *protocol.Exchange
		want string
	}{{x, "b"}, {nil, ""}} {
		var got []string
		for _, h := range describeCluster(func(string) *Upstream { return u }, "c", 100, nil, tt.x).Hosts {
			if h.Candidate {
				got = append(got, h.Address)
			} else if len(h.Reasons) != 1 || !strings.Contains(h.Reasons[0], "rules of the cluster") {
				t.Errorf("%s is not a candidate, reasons %q, want one reason about the rules of the cluster", h.Address, h.Reasons)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("candidates %v, want %s", got, tt.want)
		}
	}
}
