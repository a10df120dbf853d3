package accesslog

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// writeAccessLog returns the output of an access log for the exchanges.
func writeAccessLog(t *testing.T, c config.AccessLog, exchanges ...*protocol.Exchange) string {
	t.Helper()
	c.Path = filepath.Join(t.TempDir(), "access.log")
	a, err := Open(c, logfile.NewSet(logfile.SetOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range exchanges {
		a.Observe(x)
	}
	a.Close()
	text, err := os.ReadFile(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type scopeName string

func (s scopeName) Name() string { return string(s) }

func (scopeName) ResponseDiscarded(*protocol.Exchange) {}

// exchange returns an exchange with the response of a host.
func exchange() *protocol.Exchange {
	start := time.Date(2026, 11, 21, 4, 2, 0, 123e6, time.Local)
	x := &protocol.Exchange{
		Request: protocol.Request{Method: "GET", Authority: "shop", Path: "/buy?x=1"},
		Meta: protocol.Meta{
			Conn:     &protocol.ConnMeta{ID: 7, Listener: "in", LocalText: "127.0.0.1:80", RemoteText: "127.0.0.1:5000"},
			Protocol: "Http1", Version: "HTTP/1.1", Start: start,
		},
		Record: protocol.Record{
			Route: scopeName("all"), Cluster: scopeName("shop"),
			Attempts:          []protocol.Attempt{{Host: scopeName("10.0.0.1:8080"), Status: 200}},
			ResponseBytes:     1024,
			UpstreamStart:     start.Add(time.Millisecond),
			UpstreamFirstByte: start.Add(2 * time.Millisecond),
			End:               start.Add(3 * time.Millisecond),
		},
	}
	x.Response.Status = 200
	return x
}

func TestMOSNAccessLogFormat(t *testing.T) {
	const mosn = "%start_time% %request_received_duration% %response_received_duration% %bytes_sent% %bytes_received% %protocol% " +
		"%response_code% %duration% %response_flag% %response_code% %upstream_local_address% %downstream_local_address% " +
		"%downstream_remote_address% %upstream_host%"
	got := writeAccessLog(t, config.AccessLog{Format: mosn}, exchange())
	const want = "2026/11/21 04:02:00.123 1ms 2ms 1024 0 Http1 200 3ms - 200 - 127.0.0.1:80 127.0.0.1:5000 10.0.0.1:8080\n"
	if got != want {
		t.Errorf("line %q\nwant %q", got, want)
	}
}

func TestExchangeWithoutResponseIsLogged(t *testing.T) {
	x := &protocol.Exchange{}
	x.Record.Reason = protocol.ReasonDownstreamDisconnect
	got := writeAccessLog(t, config.AccessLog{Format: "%response_code% %response_flag% %upstream_host% %route% %start_time%"}, x)
	if want := "- DC - - -\n"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
}

func TestJSONFieldOrder(t *testing.T) {
	c := config.AccessLog{JSON: []config.LogField{
		{Name: "z", Format: "%method% %path%"}, {Name: "status", Format: "%response_code%"}, {Name: "route", Format: "%route%"},
		{Name: `qu"ote`, Format: "constant"}, {Name: "missing", Format: "%request_header_nothing%"},
	}}
	got := writeAccessLog(t, c, exchange(), exchange())
	const line = `{"z":"GET /buy","status":200,"route":"all","qu\"ote":"constant","missing":null}` + "\n"
	if got != line+line {
		t.Errorf("lines %s\nwant %s twice", got, line)
	}
}

func TestClientCannotForgeAccessLogLine(t *testing.T) {
	attacks := []string{
		"a\r\n2026/11/21 forged", "\n", "\x00\x1b[31mred", `","status":"forged`, `\","x":{`, "\u2028\u2029", "\xff\xfe", "\x7f", "\u0085",
		strings.Repeat("long\n", 10_000),
	}
	for _, attack := range attacks {
		x := exchange()
		x.Request.Path = attack
		x.Request.Header.Add("User-Agent", attack)
		line := writeAccessLog(t, config.AccessLog{Format: "%path% %request_header_user-agent% end"}, x)
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, " end\n") || strings.ContainsAny(line, "\r\x00\x1b\x7f") {
			t.Errorf("%.40q forged the line %.80q, want one line that ends with \" end\"", attack, line)
		}
		c := config.AccessLog{JSON: []config.LogField{{Name: "path", Format: "%path%"}, {Name: "status", Format: "%response_code%"}}}
		object := writeAccessLog(t, c, x)
		var got struct {
			Path   string
			Status int
		}
		if err := json.Unmarshal([]byte(object), &got); err != nil || got.Status != 200 || strings.Count(object, "\n") != 1 {
			t.Errorf("%.40q produced the line %.80q (%v), want one object with the status 200", attack, object, err)
		}
	}
}

func TestOpenErrorNamesLogAndField(t *testing.T) {
	for _, c := range []struct {
		name string
		log  config.AccessLog
		want string
	}{
		{"text", config.AccessLog{Path: "x.log", Format: "%response_cod%"}, "access log x.log: .*response_code"},
		{"json", config.AccessLog{Path: "x.log", JSON: []config.LogField{{Name: "a", Format: "%b"}}}, "access log x.log: field a: "},
		{"missing directory", config.AccessLog{Path: "/proc/nothing/x.log"}, "access log /proc/nothing/x.log: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.log, logfile.NewSet(logfile.SetOptions{}))
			if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("error %v, want a match of %q", err, c.want)
			}
		})
	}
}

func TestRotationSettingsApply(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(config.AccessLog{Path: filepath.Join(dir, "log"), Format: strings.Repeat("x", 1<<19),
		Rotation: config.Roller{MaxSizeMB: 1, MaxBackups: 1}}, logfile.NewSet(logfile.SetOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	out := a.out.(interface{ Flush() error })
	for range 3 {
		a.Observe(exchange())
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	files, err := filepath.Glob(filepath.Join(dir, "log*"))
	if err != nil || len(files) != 2 {
		t.Errorf("files %q (%v), want the log and one rotated file", files, err)
	}
}

func TestAccessLogDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("sync.Pool drops items under -race")
	}
	for _, c := range []config.AccessLog{{}, {JSON: []config.LogField{{Name: "path", Format: "%path%"}, {Name: "took", Format: "%duration%"}}}} {
		c.Path = filepath.Join(t.TempDir(), "log")
		a, err := Open(c, logfile.NewSet(logfile.SetOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		x := exchange()
		for range 5000 { // grows both buffers of the writer
			a.Observe(x)
		}
		if n := testing.AllocsPerRun(200, func() { a.Observe(x) }); n != 0 {
			t.Errorf("%v allocations per line of %v, want 0", n, c)
		}
		a.Close()
	}
}

func BenchmarkAccessLog(b *testing.B) {
	for name, c := range map[string]config.AccessLog{
		"default": {},
		"json":    {JSON: []config.LogField{{Name: "path", Format: "%path%"}, {Name: "status", Format: "%response_code%"}, {Name: "took", Format: "%duration%"}}},
	} {
		b.Run(name, func(b *testing.B) {
			c.Path = os.DevNull
			a, err := Open(c, logfile.NewSet(logfile.SetOptions{}))
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			x := exchange()
			b.ReportAllocs()
			for b.Loop() {
				a.Observe(x)
			}
		})
	}
}

func ExampleLog() {
	a, err := Open(config.AccessLog{Path: "stdout", Format: "%method% %authority%%path% %response_code%"},
		logfile.NewSet(logfile.SetOptions{}))
	if err != nil {
		fmt.Println(err)
		return
	}
	a.Observe(exchange())
	a.Close()
	// Output: GET shop/buy 200
}
