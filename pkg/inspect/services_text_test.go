package inspect

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/dubbo"
)

func TestServicesText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := []struct {
		name   string
		status dubbo.Status
		want   string
	}{
		{"nothing", dubbo.Status{}, "no registry is in use\nnothing is published\nnothing is subscribed\n"},
		{
			"everything", dubbo.Status{
				Host: "10.0.0.7", Port: 20080, LastError: "a port is in use",
				Registries: []dubbo.RegistryStatus{
					{Type: "zookeeper", Address: "a:1", Username: "u", Connected: true, Since: ago(2 * time.Minute), Sessions: 3},
					{Type: "memory", Since: ago(80 * time.Millisecond), LastError: "gone"},
				},
				Published: []dubbo.PublishedStatus{
					{Key: "g/A:1.0", Registry: "zookeeper://a:1", Mode: "all", Registered: true, Since: ago(time.Hour)},
					{Key: "B", Registry: "memory", Error: "no"},
				},
				Subscribed: []dubbo.ReferenceStatus{
					{
						Key: "C", Warnings: []string{"loadbalance: \"best\" is not known"},
						Sources: []dubbo.SubscriptionStatus{
							{Registry: "zookeeper://a:1", Received: true, ReceivedAt: ago(time.Second)},
							{Registry: "memory", Received: true, ReceivedAt: ago(time.Minute), EmptySince: ago(30 * time.Second), Error: "away"},
						},
						Providers: []dubbo.Provider{{Address: "a"}, {Address: "b"}, {Address: "c", UnusedReason: "disabled"}, {Address: "d"}, {Address: "e"}},
					},
					{Key: "D", Sources: []dubbo.SubscriptionStatus{{Registry: "memory"}}},
					{Key: "E", Sources: []dubbo.SubscriptionStatus{{Registry: "memory", Received: true, Restored: true}}, Providers: []dubbo.Provider{{Address: "a"}}},
				},
			},
			`the last change could not be applied: a port is in use
registries
  TYPE       ADDRESS  USER  STATE         SINCE  SESSIONS  LAST ERROR
  zookeeper  a:1      u     connected     2m0s   3         -
  memory     -        -     disconnected  80ms   0         gone
published, at 10.0.0.7:20080
  SERVICE  REGISTRY         MODE       STATE       AGE     ERROR
  g/A:1.0  zookeeper://a:1  all        registered  1h0m0s  -
  B        memory           interface  pending     -       no
subscribed
  SERVICE  REGISTRY         SNAPSHOT                           AGE   PROVIDERS                   ERROR
  C        zookeeper://a:1  received                           1s    4 and 1 unused: a, b, d, …  -
  C        memory           empty for 30s, providers retained  1m0s  "                           away
  D        memory           pending                            -     0                           -
  E        memory           restored                           -     1: a                        -
  C: loadbalance: "best" is not known
`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ServicesText(&tt.status, now)
			// Column widths vary, so compare the content only.
			if diff := cmp.Diff(collapseSpaces(tt.want), collapseSpaces(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestServicesTextIsSanitized verifies that control characters in names, errors and rules of a
// registry do not reach the terminal.
func TestServicesTextIsSanitized(t *testing.T) {
	const hostile = "\x1b]0;x\a\x9b2J\u202e\nnothing is published\tregistered\xff"
	status := dubbo.Status{
		Host: hostile, LastError: hostile,
		Registries: []dubbo.RegistryStatus{{Type: hostile, Address: hostile, Username: hostile, LastError: hostile}},
		Published:  []dubbo.PublishedStatus{{Key: hostile, Registry: hostile, Error: hostile}},
		Subscribed: []dubbo.ReferenceStatus{{
			Key: hostile, Warnings: []string{hostile},
			Sources: []dubbo.SubscriptionStatus{{Registry: hostile, Error: hostile}}, Providers: []dubbo.Provider{{Address: hostile}},
		}},
	}
	for line := range strings.Lines(ServicesText(&status, time.Now())) {
		if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(c rune) bool { return !unicode.IsPrint(c) && c != unicode.ReplacementChar }); i >= 0 {
			t.Errorf("line %q contains %q, want only printable characters", line, line[i:])
		}
		if strings.HasPrefix(line, "nothing") {
			t.Errorf("a value from a registry became the line %q, want no line without its indentation", line)
		}
	}
}

// collapseSpaces replaces runs of spaces with one space.
func collapseSpaces(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}
