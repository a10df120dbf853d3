package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/compare"
	"github.com/weft-proxy/weft/test/netns"
	"github.com/weft-proxy/weft/test/ports"
)

// TestTransparent compares listeners that receive redirected connections. Each proxy has a network
// namespace, in which a packet filter redirects the connections of a group's clients to its listener.
func TestTransparent(t *testing.T) {
	paths := findPrograms(t)
	network := netns.New(t)
	netns.RequirePrograms(t, "iptables")
	free := ports.Envoy()
	envoy, weftProxy := paths.newProxiesIn(t, network.Namespace("envoy"), network.Namespace("weft"), free)
	groups := cases.Transparent()
	rejections, accepted := checkGroups(t, groups, envoy, weftProxy)
	proxies := []*proxy{envoy, weftProxy}
	for _, p := range proxies {
		if len(accepted) > 0 {
			p.start(t, accepted, free)
		}
	}
	var results []*compare.Result
	for i, g := range accepted {
		clientAddress := fmt.Sprintf("127.0.1.%d", i+1)
		for _, p := range proxies {
			p.network.IPtables(fmt.Sprintf("-t nat -A OUTPUT -s %s -p tcp -j REDIRECT --to-ports %d", clientAddress, p.addresses.Listeners[g.Name]))
		}
		for _, c := range g.Cases {
			views := make([]compare.View, len(proxies))
			for j, p := range proxies {
				script := c.Script
				script.Dial = p.dialFrom(clientAddress)
				out := client.Run(p.addresses.Origins[c.Destination], &script, c.ID)
				views[j] = compare.NewView(c, out, p.origins.Take(c.ID, ""), p.normalizer)
			}
			results = append(results, compare.NewResult(g.Feature, c, views[0], views[1]))
		}
	}
	report := compare.NewReport(groups, results, rejections)
	var table strings.Builder
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteDifferences(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	checkBars(t, report)
}
