package h2

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/subject"
)

const (
	// h2specCases is the number of h2spec cases, including the strict cases.
	h2specCases = 146
	// h2specTimeout is the timeout of a run. It is long, because each failed case waits for its own
	// timeout.
	h2specTimeout = 3 * time.Minute
)

// h2specBinary builds h2spec at the version that the module in h2spec pins, and returns its path.
var h2specBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binariesDir, "h2spec")
	return path, subject.Build("h2spec", "github.com/summerwind/h2spec/cmd/h2spec", path)
})

// knownFailures lists the cases that Weft is known to fail, as "section: title" with a reason. A
// case that passes nevertheless is an error, so that the list stays correct.
func knownFailures() map[string]string { return map[string]string{} }

// netHTTPFailures lists the cases that net/http's server fails. They show that h2spec detects
// violations.
func netHTTPFailures() map[string]string {
	return map[string]string{
		"3.5. HTTP/2 Connection Preface: Sends invalid connection preface":                                                                           "known",
		"4.2. Frame Size: Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE":                                                 "known",
		"6.5.3. Settings Synchronization: Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE":                                                     "known",
		"8.1.2.2. Connection-Specific Header Fields: Sends a HEADERS frame that contains the connection-specific header field":                       "known",
		"8.1.2.2. Connection-Specific Header Fields: Sends a HEADERS frame that contains the TE header field with any value other than \"trailers\"": "known",
	}
}

// TestH2SpecDetectsFailures verifies that h2spec detects the known failures of net/http's server.
func TestH2SpecDetectsFailures(t *testing.T) {
	t.Parallel()
	o := startOrigin(t, true)
	runH2spec(t, "net-http", o.address, "/", netHTTPFailures())
}

// TestH2Spec verifies that Weft passes h2spec, including the strict cases: a listener that responds
// by itself, and listeners that forward to an origin of each protocol.
func TestH2Spec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		path        string
		newListener func(t *testing.T) listener
	}{
		{"direct", "/direct", func(*testing.T) listener { return listener{} }},
		{"to-http1", "/", func(t *testing.T) listener {
			return listener{upstream: "Http1", hosts: []string{startOrigin(t, false).address}}
		}},
		{"to-http2", "/", func(t *testing.T) listener {
			return listener{upstream: "Http2", hosts: []string{startOrigin(t, true).address}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := startWeft(t, c.newListener(t))
			runH2spec(t, "weft-"+c.name, w.addresses[0], c.path, knownFailures())
		})
	}
}

// runH2spec runs h2spec, keeps its report as h2spec-NAME.xml and .txt, and compares the failures
// with the expected ones.
func runH2spec(t *testing.T, name, address, path string, expected map[string]string) {
	t.Helper()
	program, err := h2specBinary()
	if err != nil {
		if reason := networkErrorLine(err); reason != "" {
			t.Skip("SKIPPED: the module proxy does not provide h2spec: " + reason)
		}
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.xml")
	ctx, cancel := context.WithTimeout(t.Context(), h2specTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-S", "-h", "127.0.0.1", "-p", port(t, address), "-P", path, "-j", file).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("h2spec: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("h2spec wrote no report: %v\n%s", err, out)
	}
	writeReport(t, "h2spec-"+name+".xml", text)
	writeReport(t, "h2spec-"+name+".txt", out)
	result, err := parseReport(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("h2spec of %s: %d cases, %d failed", name, result.cases, len(result.failed))
	if result.cases != h2specCases {
		t.Errorf("h2spec ran %d cases, want %d", result.cases, h2specCases)
	}
	for _, id := range slices.Sorted(maps.Keys(result.failed)) {
		if _, ok := expected[id]; !ok {
			t.Errorf("%s\n%s", id, result.failed[id])
		}
	}
	for id := range expected {
		if _, ok := result.failed[id]; !ok {
			t.Errorf("%s: the case passes, want a failure as in the list of expected failures", id)
		}
	}
}

// h2specResult is the result of h2spec.
type h2specResult struct {
	cases  int               // number of cases
	failed map[string]string // "section: title" to the failure
}

// parseReport parses the JUnit report of h2spec.
func parseReport(text []byte) (h2specResult, error) {
	var r struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Title   string  `xml:"classname,attr"`
				Failure *string `xml:"failure"`
				Error   *string `xml:"error"`
				Skipped *string `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil {
		return h2specResult{}, fmt.Errorf("report of h2spec: %w", err)
	}
	result := h2specResult{failed: map[string]string{}}
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			id := s.Name + ": " + c.Title
			if c.Skipped != nil {
				result.failed[id] = "skipped"
				continue
			}
			result.cases++
			for _, problem := range []*string{c.Failure, c.Error} {
				if problem != nil {
					result.failed[id] = strings.TrimSpace(*problem)
				}
			}
		}
	}
	return result, nil
}
