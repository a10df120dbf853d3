package dubbo

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

func exampleState() *state {
	return &state{
		Saved: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		Published: []stateEntry{{
			Request: Request{Registry: Registry{Type: "fake", Address: "h:1", Password: "p"}, Service: Service{Interface: "x", Methods: []string{"get"}}},
			Since:   time.Date(2026, 5, 4, 11, 0, 0, 0, time.UTC),
		}},
		Subscribed: []stateSubscribed{{
			stateEntry: stateEntry{Request: Request{Registry: Registry{Type: "fake", Address: "h:1"}, Service: Service{Interface: "y"}}},
			Listed:     time.Date(2026, 5, 4, 11, 30, 0, 0, time.UTC),
			Providers:  []stateURL{{URL: registry.URL{Protocol: "dubbo", Host: "10.0.0.1", Port: 20880, Path: "y", Parameters: registry.ParametersOf(map[string]string{"interface": "y"})}}},
		}},
	}
}

// encoded returns a state file in one piece.
func encoded(t testing.TB, s *state) []byte {
	t.Helper()
	parts, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(parts, nil)
}

func TestStateFilePermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state.json")
	text := encoded(t, exampleState())
	for range 2 { // also over an existing file
		if err := writeState(path, [][]byte{text}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600, because the file contains passwords", info.Mode())
	}
	got, err := readState(path)
	if err != nil {
		t.Fatal(err)
	}
	if reencoded := encoded(t, got); !bytes.Equal(reencoded, text) {
		t.Errorf("encoded again: %s, want %s", reencoded, text)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files = %v, %v; want only the state file", files, err)
	}
}

func TestDamagedStateFileIsRejected(t *testing.T) {
	text := encoded(t, exampleState())
	for i := range text {
		damaged := bytes.Clone(text)
		damaged[i] ^= 1
		s, err := parseState(damaged)
		if err != nil {
			continue
		}
		// Only the case of a key may differ.
		if reencoded := encoded(t, s); !bytes.Equal(reencoded, text) {
			t.Fatalf("parseState accepts a file whose byte %d is changed: %s", i, damaged)
		}
	}
	for n := range text {
		if _, err := parseState(text[:n]); err == nil {
			t.Fatalf("parseState accepts %d bytes of %d", n, len(text))
		}
	}
}

func TestInvalidURLInStateFileIsSkipped(t *testing.T) {
	original := exampleState()
	original.Subscribed[0].Providers = append([]stateURL{{}}, original.Subscribed[0].Providers...)
	parsed, err := parseState(encoded(t, original))
	if err != nil {
		t.Fatal(err)
	}
	got := parsed.Subscribed[0].Providers
	if len(got) != 2 || got[0].problem == nil || got[1].problem != nil || got[1].String() != original.Subscribed[0].Providers[1].String() {
		t.Errorf("got %v, want one invalid and one valid URL", got)
	}
}

func TestOversizedStateFileIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, encoded(t, exampleState()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxStateSize+1); err != nil { // sparse, so that it uses no disk space
		t.Fatal(err)
	}
	if _, err := readState(path); err == nil || !strings.Contains(err.Error(), strconv.Itoa(maxStateSize)) {
		t.Errorf("readState = %v, want an error with the maximum size", err)
	}
}

func FuzzParseState(f *testing.F) {
	text := encoded(f, exampleState())
	f.Add(text)
	f.Add([]byte(`{"weft_dubbo_services":2}`))
	f.Add([]byte(`{"weft_dubbo_services":1,"sha256":"","content":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		encoded(t, s)
	})
}

func TestHostToPublish(t *testing.T) {
	tests := []struct {
		name  string
		texts []string
		want  string
	}{
		{"no address", nil, "127.0.0.1"},
		{"first global IPv4 address", []string{"127.0.0.1/8", "fe80::1/64", "169.254.1.1/16", "2001:db8::1/64", "10.0.0.7/24", "10.0.0.8/24"}, "10.0.0.7"},
		{"only loopback", []string{"127.0.0.1/8", "::1/128"}, "127.0.0.1"},
	}
	for _, tt := range tests {
		if got := firstGlobal(tt.texts); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
	t.Setenv(hostVariable, "192.0.2.1")
	if got := hostToPublish(""); got != "192.0.2.1" {
		t.Errorf("got %s, want the value of the environment variable", got)
	}
	if got := hostToPublish("192.0.2.2"); got != "192.0.2.2" {
		t.Errorf("got %s, want the configured host", got)
	}
}
