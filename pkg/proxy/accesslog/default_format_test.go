package accesslog

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestDefaultAccessLogLine(t *testing.T) {
	x := exchange()
	x.Meta.Start = x.Meta.Start.In(time.FixedZone("", 8*3600))
	want := x.Meta.Start.Format("2006-01-02T15:04:05.000Z07:00") +
		" 127.0.0.1:5000 GET shop /buy?x=1 HTTP/1.1 200 - 0 1024 3.000 shop 10.0.0.1:8080 all\n"
	if !strings.Contains(want, "+08:00 ") {
		t.Fatalf("the expected line has no time zone: %s", want)
	}
	if got := writeAccessLog(t, config.AccessLog{}, x); got != want {
		t.Errorf("line %q\nwant %q", got, want)
	}
}

func TestDefaultAccessLogColumnCountIsConstant(t *testing.T) {
	columns := len(strings.Fields(DefaultFormat))
	spaced := exchange()
	spaced.Request.Path, spaced.Request.Authority = "/a b c", "a  b"
	spaced.Record.Route = scopeName("the route for all")
	for name, x := range map[string]*protocol.Exchange{"empty exchange": {}, "values with spaces": spaced} {
		line := writeAccessLog(t, config.AccessLog{}, x)
		if got := strings.Split(strings.TrimSuffix(line, "\n"), " "); len(got) != columns {
			t.Errorf("%s: %d columns in %q, want %d", name, len(got), line, columns)
		}
	}
	if line := writeAccessLog(t, config.AccessLog{}, spaced); !strings.Contains(line, ` /a\x20b\x20c `) || !strings.HasSuffix(line, ` the\x20route\x20for\x20all`+"\n") {
		t.Errorf("line %q, want spaces in values as \\x20", line)
	}
}

func TestDurationsAreNumbersInJSON(t *testing.T) {
	x := exchange()
	x.Record.End = x.Meta.Start.Add(61_100 * time.Nanosecond)
	c := config.AccessLog{JSON: []config.LogField{
		{Name: "ms", Format: "%duration_ms%"}, {Name: "sent", Format: "%request_received_duration_ms%"},
		{Name: "answered", Format: "%response_received_duration_ms%"},
	}}
	const want = `{"ms":0.061,"sent":1.000,"answered":2.000}` + "\n"
	if got := writeAccessLog(t, c, x); got != want {
		t.Errorf("line %s, want %s", got, want)
	}
	x.Record.End = x.Meta.Start.Add(-time.Second)
	if got := writeAccessLog(t, config.AccessLog{Format: "%duration_ms%"}, x); got != "0.000\n" {
		t.Errorf("clock set back: %q, want 0.000", got)
	}
}
