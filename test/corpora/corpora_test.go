package corpora

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/child"
	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/ports"
	"github.com/weft-proxy/weft/test/subject"
)

// root is the root of the repository.
const root = "../.."

var (
	checkouts = flag.String("dir", "", "directory of the checkouts that test/scripts/corpora makes")
	only      = flag.String("only", "", "run the corpora whose names match this regular expression")
	file      = flag.String("file", "", "run the configurations whose names match this regular expression")
	output    = flag.String("o", "", "write the results to this file, in JSON")
	checkOnly = flag.Bool("check", false, "check the configurations, but do not run them")
	program   = flag.String("weft", "", "the program under test; by default, it is built")
)

func TestCorpora(t *testing.T) {
	if *checkouts == "" {
		t.Skip("no corpora: run test/scripts/corpora DIR, and pass -args -dir DIR")
	}
	b := newBench(t)
	var summaries []*summary
	for _, c := range corpora() {
		if !regexp.MustCompile(*only).MatchString(c.name) {
			continue
		}
		configs, err := c.find(filepath.Join(*checkouts, c.dir))
		if err != nil {
			t.Fatal(err)
		}
		s := &summary{Title: c.title, isMOSN: c.isMOSN}
		for i := range configs {
			if !regexp.MustCompile(*file).MatchString(configs[i].name) {
				continue
			}
			s.Results = append(s.Results, b.measure(t, &configs[i], c.isMOSN))
		}
		summaries = append(summaries, s)
	}
	var text strings.Builder
	if err := writeTable(&text, summaries); err != nil {
		t.Fatal(err)
	}
	if err := writeReasons(&text, summaries); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &text)
	if *output != "" {
		data, err := json.MarshalIndent(summaries, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*output, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// bench holds the programs and origins.
type bench struct {
	weft, envoy string
	pair        keyPair
	ports       *ports.Range
	origins     *origin.Set
	count       int // of probes, for their IDs
}

func newBench(t *testing.T) *bench {
	t.Helper()
	installed, err := filepath.Abs(filepath.Join(root, ".tools", "envoy", "envoy", "_bin", "envoy"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{weft: *program, envoy: cmp.Or(os.Getenv("WEFT_ENVOY"), installed), ports: ports.Corpora()}
	if _, err := os.Stat(b.envoy); err != nil {
		t.Skipf("no Envoy to compare with: %v; run test/scripts/setup, or set WEFT_ENVOY to the path of Envoy 1.40", err)
	}
	if b.weft == "" {
		b.weft = filepath.Join(t.TempDir(), "weft")
		if err := subject.Weft(root, b.weft); err != nil {
			t.Fatal(err)
		}
	}
	if b.pair, err = newKeyPair(); err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(b.pair.certificate, b.pair.key)
	if err != nil {
		t.Fatal(err)
	}
	if b.origins, err = origin.Listen(b.ports.Free, certificate); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.origins.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// measure checks a configuration and, if both proxies accept it, runs it.
func (b *bench) measure(t *testing.T, c *config, isMOSN bool) *result {
	t.Helper()
	r := &result{Name: c.name}
	text, err := provideFiles(c, t.TempDir(), b.pair)
	if err == nil && !isMOSN && c.ext == ".json" {
		text, err = withCertificates(text, b.pair)
	}
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	path := writeFile(t, "config"+c.ext, text)
	out, err := exec.CommandContext(t.Context(), b.weft, "check", path).CombinedOutput()
	r.Taken, r.Reasons = err == nil, reasonsOf(string(out))
	if r.Valid = isMOSN; !isMOSN {
		out, err := b.validate(t, path)
		if r.Valid = err == nil; !r.Valid {
			r.Envoy = lastLine(out)
		}
	}
	if *checkOnly || !r.Taken || !r.Valid {
		return r
	}
	b.run(t, text, r, isMOSN)
	return r
}

// withCertificates replaces the inline certificates of a bootstrap in JSON.
func withCertificates(text []byte, pair keyPair) ([]byte, error) {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return text, nil // not a generated bootstrap: Envoy's JSON may have comments
	}
	replaceInline(v, pair)
	return json.MarshalIndent(v, "", " ")
}

func (b *bench) validate(t *testing.T, path string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.envoy, append(nodeFlags(), "--mode", "validate", "-l", "critical", "-c", path)...).CombinedOutput()
	return string(out), err
}

// nodeFlags returns flags that identify a node, which bootstraps may omit.
func nodeFlags() []string { return []string{"--service-node", "node", "--service-cluster", "cluster"} }

// run runs a configuration in Weft and, unless it is MOSN's, in Envoy, and compares the answers.
func (b *bench) run(t *testing.T, text []byte, r *result, isMOSN bool) {
	t.Helper()
	a := addresses{origin: b.origins.Ports()["o1"], tls: b.origins.Ports()["s2"], freePort: func() (int, error) { return b.ports.Free("127.0.0.1") }}
	prepare := rewrite
	if isMOSN {
		prepare = rewriteMOSN
	}
	weft, err := prepare(text, a)
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	process, failure := b.start(t, weft, b.weft, "start", "-c")
	if process == nil {
		r.Failure = "Weft: " + failure
		return
	}
	defer process.Kill()
	r.Started = true
	if isMOSN || weft.waits {
		return
	}
	envoy, err := prepare(text, a)
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	reference, failure := b.start(t, envoy, append(append([]string{b.envoy}, nodeFlags()...), "--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c")...)
	if reference == nil {
		r.Failure = "Envoy: " + failure
		return
	}
	defer reference.Kill()
	for _, p := range probesOf(weft.listeners) {
		answers := [2]answer{}
		for i, port := range []int{weft.listeners[p.listener].port, envoy.listeners[p.listener].port} {
			b.count++
			answers[i] = send(t.Context(), p, port, strconv.Itoa(b.count), b.origins)
			answers[i].location = strings.ReplaceAll(answers[i].location, strconv.Itoa(port), "PORT")
		}
		r.Probes++
		if !answers[0].equals(answers[1]) {
			r.Unequal = append(r.Unequal, fmt.Sprintf("%s%s: Weft %v, Envoy %v", p.host, p.path, answers[0], answers[1]))
		}
	}
}

// start starts a program with a configuration, and waits until it listens. failure says why it does
// not; process is then nil.
func (b *bench) start(t *testing.T, c *runnable, args ...string) (process *child.Process, failure string) {
	t.Helper()
	path := writeFile(t, "run.json", c.text)
	cmd := exec.Command(args[0], append(args[1:len(args):len(args)], path)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(path))
	p := child.Start(t, filepath.Base(args[0]), cmd)
	deadline := time.Now().Add(30 * time.Second)
	for !b.listens(c) {
		select {
		case <-p.Done():
			return nil, lastLine(p.Log())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.Kill()
			return nil, "does not listen after 30 s"
		}
	}
	return p, ""
}

// listens reports whether all listeners of a configuration accept connections, or the admin port if
// there are none.
func (b *bench) listens(c *runnable) bool {
	addresses := []int{}
	for _, l := range c.listeners {
		addresses = append(addresses, l.port)
	}
	if len(addresses) == 0 && c.admin != 0 {
		addresses = []int{c.admin}
	}
	for _, port := range addresses {
		conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			return false
		}
		_ = conn.Close()
	}
	return true
}

func writeFile(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// reasonsOf returns the errors in the output of weft check.
func reasonsOf(out string) (reasons []string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.Contains(line, "warning:") && !strings.Contains(line, ": ok: ") {
			reasons = append(reasons, line)
		}
	}
	return reasons
}

// lastLine returns the last line of a text, at most 300 bytes.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), 300)]
}
