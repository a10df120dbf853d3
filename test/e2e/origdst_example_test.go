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

// shownIn returns the lines of the first fenced block of a page that has this language.
func shownIn(t *testing.T, page, language string) []string {
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

// transparentExample runs transparent.json in the gate of a street, with the rules from
// docs/transparent.md.
func transparentExample(t *testing.T) {
	for _, tt := range []struct {
		name  string
		how   string
		rules func(s *street)
		from  func(s *street) *netns.Namespace
	}{
		{"what the machine sends, nftables", "redirect", func(s *street) {
			s.gate.Nftables(strings.Join(shownIn(t, "transparent.md", "nft"), ""))
		}, (*street).inside},
		{"what the machine sends, iptables", "redirect", func(s *street) {
			for _, rule := range shownIn(t, "transparent.md", "iptables") {
				s.gate.IPtables(rule)
			}
		}, (*street).inside},
		{"what comes in, TPROXY", "tproxy", func(s *street) {
			for _, rule := range shownIn(t, "transparent.md", "iptables-tproxy") {
				s.gate.IPtables(rule)
			}
			for _, command := range shownIn(t, "transparent.md", "ip") {
				s.gate.Run("ip", strings.Fields(command)...)
			}
		}, (*street).outside},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(root, "configs", "transparent.json"))
			if err != nil {
				t.Fatal(err)
			}
			s := newStreet(t)
			tt.rules(s)
			config := string(text)
			if tt.how != "redirect" {
				config = strings.NewReplacer(`"redirect"`, `"`+tt.how+`"`, "127.0.0.1:15001", "0.0.0.0:15001").Replace(config)
			}
			s.start(launchOptions{args: []string{"start", "-c", writeFile(t, "transparent.json", config)}})

			got := ask(t, httpFrom(t, tt.from(s), false), "GET", "http://"+netip.AddrPortFrom(s.far.B.IPv4, 80).String()+"/", "")
			if want := "HTTP/1.1 80 saw " + s.far.A.IPv4.String(); got.status != http.StatusOK || got.body != want || got.header.Get("X-Carried-By") != "weft" {
				t.Errorf("%d %q, carried by %q; want %q, carried by weft", got.status, got.body, got.header.Get("X-Carried-By"), want)
			}
			c, err := tt.from(s).Dial("tcp", netip.AddrPortFrom(s.far.B.IPv4, 20880).String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			back := make([]byte, 4)
			if _, err := io.WriteString(c, "ping"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, back); err != nil || string(back) != "ping" {
				t.Errorf("bytes came back as %q, %v", back, err)
			}
		})
	}
}

// inside returns the namespace of Weft, outside that of the client.
func (s *street) inside() *netns.Namespace  { return s.gate }
func (s *street) outside() *netns.Namespace { return s.client }
