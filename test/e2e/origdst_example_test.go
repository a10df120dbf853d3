package e2e

import (
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/netns"
)

// fencedBlock returns the lines of the first fenced block of a page that has this language.
func fencedBlock(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s shows no %s", page, language)
	}
	return slices.Collect(strings.Lines(string(found[1])))
}

// transparentExample runs transparent.json in the gateway of a testNetwork, with the rules from
// docs/transparent.md.
func transparentExample(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mode  string
		rules func(tn *testNetwork)
		from  func(tn *testNetwork) *netns.Namespace
	}{
		{"outbound, nftables", "redirect", func(tn *testNetwork) {
			tn.proxyNS.Nftables(strings.Join(fencedBlock(t, "transparent.md", "nft"), ""))
		}, (*testNetwork).proxyNamespace},
		{"outbound, iptables", "redirect", func(tn *testNetwork) {
			for _, rule := range fencedBlock(t, "transparent.md", "iptables") {
				tn.proxyNS.IPtables(rule)
			}
		}, (*testNetwork).proxyNamespace},
		{"inbound, TPROXY", "tproxy", func(tn *testNetwork) {
			for _, rule := range fencedBlock(t, "transparent.md", "iptables-tproxy") {
				tn.proxyNS.IPtables(rule)
			}
			for _, command := range fencedBlock(t, "transparent.md", "ip") {
				tn.proxyNS.Run("ip", strings.Fields(command)...)
			}
		}, (*testNetwork).clientNamespace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, "configs", "transparent.json"))
			if err != nil {
				t.Fatal(err)
			}
			tn := newTestNetwork(t)
			tt.rules(tn)
			config := string(text)
			if tt.mode != "redirect" {
				config = strings.NewReplacer(`"redirect"`, `"`+tt.mode+`"`, "127.0.0.1:15001", "0.0.0.0:15001").Replace(config)
			}
			tn.start(launchOptions{args: []string{"start", "-c", writeFile(t, "transparent.json", config)}})

			got := sendRequest(t, clientIn(t, tt.from(tn), false), "GET", "http://"+netip.AddrPortFrom(tn.originLink.B.IPv4, 80).String()+"/", "")
			if want := "HTTP/1.1 80 saw " + tn.originLink.A.IPv4.String(); got.status != http.StatusOK || got.body != want || got.header.Get("X-Carried-By") != "weft" {
				t.Errorf("%d %q, forwarded by %q; want %q, forwarded by weft", got.status, got.body, got.header.Get("X-Carried-By"), want)
			}
			c, err := tt.from(tn).Dial("tcp", netip.AddrPortFrom(tn.originLink.B.IPv4, 20880).String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(waitTimeout))
			echo := make([]byte, 4)
			if _, err := io.WriteString(c, "ping"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, echo); err != nil || string(echo) != "ping" {
				t.Errorf("echo is %q, %v; want \"ping\"", echo, err)
			}
		})
	}
}

// proxyNamespace returns the namespace of Weft. The client has another one.
func (tn *testNetwork) proxyNamespace() *netns.Namespace  { return tn.proxyNS }
func (tn *testNetwork) clientNamespace() *netns.Namespace { return tn.clientNS }
