package application_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/dubbo/application"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/registry"
)

// golden returns a file of testdata that a provider of Dubbo 3.3.5 wrote.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func instance(metadata map[string]string) registry.Instance {
	return registry.Instance{
		Application: "echo-provider", ID: "10.77.0.1:20001", Host: "10.77.0.1", Port: 20001,
		Weight: 1, Healthy: true, Enabled: true, Metadata: metadata,
	}
}

// echo is the interface of the providers in testdata.
const echo = "weft.interop.dubbo.Echo"

func urlStrings(urls []registry.URL) (list []string) {
	for _, u := range urls {
		list = append(list, u.String())
	}
	slices.Sort(list)
	return list
}

func TestParseMetadataOfJava(t *testing.T) {
	info, err := application.ParseMetadataInfo(golden(t, "remote.json"))
	if err != nil {
		t.Fatal(err)
	}
	urls := info.URLs(instance(nil), registry.Service{Interface: echo})
	if len(urls) != 1 {
		t.Fatalf("providers = %v, want one", urlStrings(urls))
	}
	u := urls[0]
	if u.Protocol != "dubbo" || u.Address() != "10.77.0.1:20001" || u.Path != echo || u.Get("release") != "3.3.5" || u.Get("application") != "echo-provider" {
		t.Errorf("provider = %s, want dubbo://10.77.0.1:20001/%s of echo-provider, release 3.3.5", u, echo)
	}
	if otherURLs := info.URLs(instance(nil), registry.Service{Interface: echo, Version: "1.0"}); otherURLs != nil {
		t.Errorf("providers of another version: %v, want none", urlStrings(otherURLs))
	}
}

func TestURLsOfInstance(t *testing.T) {
	const metadata = `{"app": "a", "services": {
		"g/x:1:dubbo": {"name": "x", "group": "g", "version": "1", "protocol": "dubbo", "port": 1, "path": "x", "params": {"weight": "50", "timestamp": "7"}},
		"x:dubbo": {"name": "x", "protocol": "dubbo", "path": "x"},
		"x:tri": {"name": "x", "protocol": "tri", "path": "x"}}}`
	info, err := application.ParseMetadataInfo([]byte(metadata))
	if err != nil {
		t.Fatal(err)
	}
	ungrouped, grouped := registry.Service{Interface: "x"}, registry.Service{Interface: "x", Group: "g", Version: "1"}
	tests := []struct {
		name    string
		change  func(*registry.Instance)
		service registry.Service
		want    string
	}{
		{"port of the instance", func(*registry.Instance) {}, ungrouped,
			"dubbo://10.77.0.1:1/x?application=echo-provider&group=g&interface=x&timestamp=7&version=1&weight=50 " +
				"dubbo://10.77.0.1:20001/x?application=echo-provider&interface=x tri://10.77.0.1:20001/x?application=echo-provider&interface=x"},
		{"port of the service", func(*registry.Instance) {}, grouped,
			"dubbo://10.77.0.1:1/x?application=echo-provider&group=g&interface=x&timestamp=7&version=1&weight=50"},
		{"ports by protocol", func(i *registry.Instance) {
			i.Metadata = map[string]string{"dubbo.endpoints": `[{"port": 5, "protocol": "dubbo"}, {"port": 6, "protocol": "tri"}]`}
		}, ungrouped, "dubbo://10.77.0.1:5/x?application=echo-provider&group=g&interface=x&timestamp=7&version=1&weight=50 " +
			"dubbo://10.77.0.1:5/x?application=echo-provider&interface=x tri://10.77.0.1:6/x?application=echo-provider&interface=x"},
		{"tag and timestamp", func(i *registry.Instance) {
			i.Metadata = map[string]string{"dubbo.tag": "gray", "timestamp": "9"}
		}, grouped, "dubbo://10.77.0.1:1/x?application=echo-provider&dubbo.tag=gray&group=g&interface=x&timestamp=7&version=1&weight=50"},
		{"weight", func(i *registry.Instance) { i.Weight = 2 }, grouped,
			"dubbo://10.77.0.1:1/x?application=echo-provider&group=g&interface=x&timestamp=7&version=1&weight=100"},
		{"zero weight", func(i *registry.Instance) { i.Weight = 0 }, grouped,
			"dubbo://10.77.0.1:1/x?application=echo-provider&group=g&interface=x&timestamp=7&version=1&weight=0"},
		{"unhealthy", func(i *registry.Instance) { i.Healthy = false }, grouped,
			"dubbo://10.77.0.1:1/x?application=echo-provider&disabled=true&group=g&interface=x&timestamp=7&version=1&weight=50"},
		{"unknown service", func(*registry.Instance) {}, registry.Service{Interface: "y"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := instance(nil)
			tt.change(&i)
			if got := strings.Join(urlStrings(info.URLs(i, tt.service)), " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestRevision(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "", "abc": "abc"} {
		if got := application.Revision(instance(map[string]string{"dubbo.metadata.revision": text})); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// fakeMetadataSource is a registry with one document.
type fakeMetadataSource struct {
	text []byte
	err  error
}

func (s fakeMetadataSource) Metadata(_ context.Context, app, revision string) ([]byte, error) {
	if app != "echo-provider" || revision != "r" {
		return nil, registry.ErrNoMetadata
	}
	return s.text, s.err
}

func TestFetchFromRegistry(t *testing.T) {
	i := instance(map[string]string{"dubbo.metadata.revision": "r", "dubbo.metadata.storage-type": "remote"})
	info, err := application.Fetch(t.Context(), fakeMetadataSource{text: golden(t, "remote.json")}, i)
	if err != nil || info.Len() != 1 {
		t.Fatalf("Fetch = %v, %v, want one interface", info, err)
	}
	for name, source := range map[string]fakeMetadataSource{"not found": {err: registry.ErrNoMetadata}, "invalid JSON": {text: []byte("[]")}, "service without a name": {text: []byte(`{"services": {"a": {}}}`)}} {
		if _, err := application.Fetch(t.Context(), source, i); err == nil || !strings.Contains(err.Error(), "metadata of echo-provider, revision r") {
			t.Errorf("%s: %v, want an error with the application and the revision", name, err)
		}
	}
}

// startFakeInstance returns an instance that responds to one call with a head and a body, and a
// channel that receives the body of the call.
func startFakeInstance(t *testing.T, head, body []byte) (registry.Instance, <-chan []byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := make(chan []byte, 1)
	go func() {
		defer close(calls)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }() // the test has ended
		header := make([]byte, 16)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		call := make([]byte, binary.BigEndian.Uint32(header[12:]))
		if _, err := io.ReadFull(conn, call); err != nil {
			return
		}
		calls <- call
		copy(head[4:12], header[4:12])
		binary.BigEndian.PutUint32(head[12:], uint32(len(body)))
		ping := []byte("\xda\xbb\xe2\x00\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x01N")
		_, _ = conn.Write(append(append(ping, head...), body...)) // Fetch reports errors
	}()
	t.Cleanup(func() { _ = ln.Close() })
	port := ln.Addr().(*net.TCPAddr).Port
	i := instance(map[string]string{
		"dubbo.metadata.revision": "r", "dubbo.metadata.storage-type": "local",
		"dubbo.metadata-service.url-params": `{"version": "1.0.0", "side": "provider", "port": "` + strconv.Itoa(port) + `", "protocol": "dubbo"}`,
	})
	i.Host = "127.0.0.1"
	return i, calls
}

func okHeader() []byte { return append([]byte("\xda\xbb\x02\x14"), make([]byte, 12)...) }

func TestFetchFromInstance(t *testing.T) {
	i, calls := startFakeInstance(t, okHeader(), golden(t, "local.bin"))
	info, err := application.Fetch(t.Context(), fakeMetadataSource{err: errors.New("unexpected request")}, i)
	if err != nil {
		t.Fatal(err)
	}
	urls := info.URLs(i, registry.Service{Interface: echo})
	urls = slices.DeleteFunc(urls, func(u registry.URL) bool { return u.Get("group") != "" || u.Get("version") != "" }) // there are three
	if len(urls) != 1 || urls[0].Get("release") != "3.3.5" || urls[0].Get("methods") == "" || urls[0].Path != echo {
		t.Errorf("providers = %v, want one with the data of the golden file", urlStrings(urls))
	}
	var d hessian.Decoder
	d.Reset(<-calls)
	for _, want := range []string{"2.0.2", "org.apache.dubbo.metadata.MetadataService", "1.0.0", "getMetadataInfo", "Ljava/lang/String;", "r"} {
		if text, err := d.Text(); err != nil || string(text) != want {
			t.Fatalf("argument of the call = %q, %v; want %q", text, err, want)
		}
	}
}

func TestInvalidResponses(t *testing.T) {
	nullResult := hessian.AppendInt(nil, 2)
	exception := hessian.AppendThrowable(hessian.AppendInt(nil, 0), hessian.Throwable{Class: "java.lang.RuntimeException", Message: "not now"})
	tests := []struct {
		name string
		head []byte
		body []byte
		want string
	}{
		{"null result", okHeader(), nullResult, "no longer has that revision"},
		{"exception", okHeader(), exception, "not now"},
		{"error status", append([]byte("\xda\xbb\x02\x3c"), make([]byte, 12)...), nil, "its status is 60"},
		{"other serialization", append([]byte("\xda\xbb\x06\x14"), make([]byte, 12)...), nullResult, "not encoded in Hessian 2"},
		{"empty body", okHeader(), nil, "unexpected end at byte 0"},
		{"number instead of an object", okHeader(), hessian.AppendInt(hessian.AppendInt(nil, 1), 7), "the result is not an object"},
		{"map without services", okHeader(), hessian.AppendMapEnd(hessian.AppendMapStart(hessian.AppendInt(nil, 1))), "no map of services"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i, _ := startFakeInstance(t, tt.head, tt.body)
			if _, err := application.Fetch(t.Context(), nil, i); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Fetch = %v, want an error with %s", err, tt.want)
			}
		})
	}
}

func TestFetchTimesOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }() // nothing was accepted
	i := instance(map[string]string{"dubbo.metadata.revision": "r",
		"dubbo.metadata-service.url-params": `{"dubbo": {"port": "` + strconv.Itoa(ln.Addr().(*net.TCPAddr).Port) + `"}}`})
	i.Host = "127.0.0.1"
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := ln.Accept(); err == nil {
			_, _ = io.ReadFull(conn, make([]byte, 16)) // the request has arrived
			cancel()
		}
	}()
	if _, err := application.Fetch(ctx, nil, i); !errors.Is(err, context.Canceled) {
		t.Errorf("Fetch = %v, want Canceled", err)
	}
}

func TestFetchWithoutMetadataService(t *testing.T) {
	for _, text := range []string{"", "{", `{"port": "x", "protocol": "dubbo"}`, `{"port": "1", "protocol": "tri"}`, `{"tri": {"port": "1"}}`, `{"port": "70000", "protocol": "dubbo"}`} {
		i := instance(map[string]string{"dubbo.metadata.revision": "r", "dubbo.metadata-service.url-params": text})
		if _, err := application.Fetch(t.Context(), nil, i); err == nil || !strings.Contains(err.Error(), "has no port to fetch its metadata") {
			t.Errorf("%q: %v, want an error about the missing port", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(golden(f, "remote.json"))
	f.Fuzz(func(t *testing.T, text []byte) {
		info, err := application.ParseMetadataInfo(text)
		if err != nil {
			return
		}
		for _, u := range info.URLs(instance(nil), registry.Service{Interface: echo}) {
			if u.Service() != (registry.Service{Interface: echo}) && u.Get("version") != "0.0.0" {
				t.Errorf("provider = %s, want no group or version", u)
			}
		}
	})
}
