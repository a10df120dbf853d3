package ads

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the scripts show")

// TestScripts verifies a Client with testdata/*.script. Each line is a call of the client, and the
// indented lines below it are the results: ">" is a request to send, "=" an update.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.script")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".script"), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(string(b))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // a file of the repository
					t.Fatal(err)
				}
			} else if got != string(b) {
				t.Errorf("%s differs from the result:\n%s", path, got)
			}
		})
	}
}

// runScript returns a script with the actual results of its lines.
func runScript(text string) string {
	var out strings.Builder
	s := &script{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out.WriteString(line)
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, came := range s.runLine(line) {
			out.WriteString("  " + came + "\n")
		}
	}
	return out.String()
}

type script struct {
	client     *Client
	lastUpdate Update
}

// runLine executes one line:
//
//	sotw CDS! EDS       new client; "!" sets AllResourcesRequiredInSotW
//	delta CDS! EDS
//	start | end         open or close the stream
//	all CDS             subscribe to all resources of a type
//	want EDS a b        set the subscribed names
//	keep EDS a=1        restore a
//	response CDS v1 n1 a=1 b=2@7 c@8 -d e!  b has version 7, c is a heartbeat, d is removed,
//	                                        e has a DecodeError
//	accept              acknowledge the update
//	refuse a: why; b: why
//	held CDS            list the accepted resources
func (s *script) runLine(line string) []string {
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch verb {
	case "sotw", "delta":
		form := StateOfTheWorld
		if verb == "delta" {
			form = Delta
		}
		var types []Type
		for _, w := range words {
			name, whole := strings.CutSuffix(w, "!")
			types = append(types, Type{URL: name, AllResourcesRequiredInSotW: whole})
		}
		s.client = New(form, types...)
		return nil
	case "start":
		return formatRequests(s.client.StreamOpened())
	case "end":
		s.client.StreamClosed()
		return nil
	case "all":
		return formatRequests(s.client.SubscribeAll(words[0]))
	case "want":
		return formatRequests(s.client.SetSubscription(words[0], words[1:]))
	case "keep":
		s.client.Restore(words[0], parseResource(words[1]))
		return nil
	case "response":
		return s.receive(words)
	case "accept":
		return s.acknowledge(nil)
	case "refuse":
		var wrong []ResourceError
		for w := range strings.SplitSeq(rest, "; ") {
			name, reason, _ := strings.Cut(w, ": ")
			wrong = append(wrong, ResourceError{name, reason})
		}
		return s.acknowledge(wrong)
	case "held":
		held := s.client.Resources(words[0])
		var all []string
		for _, n := range slices.Sorted(maps.Keys(held)) {
			all = append(all, formatResource(held[n]))
		}
		version, ok := s.client.Version(words[0])
		return []string{fmt.Sprintf("= %s; version %q %v", strings.Join(all, " "), version, ok)}
	}
	panic("no such line: " + line)
}

func (s *script) receive(words []string) []string {
	r := Response{Type: words[0], Version: words[1], Nonce: words[2]}
	for _, w := range words[3:] {
		if name, removed := strings.CutPrefix(w, "-"); removed {
			r.Removed = append(r.Removed, name)
		} else {
			r.Resources = append(r.Resources, parseResource(w))
		}
	}
	u, ok := s.client.Receive(r)
	if !ok {
		return []string{"= not asked for"}
	}
	s.lastUpdate = u
	words = []string{"=", u.Type, u.Version}
	for _, n := range u.Changed {
		words = append(words, formatResource(n))
	}
	for _, n := range u.Removed {
		words = append(words, "-"+n)
	}
	return []string{strings.Join(words, " ")}
}

func (s *script) acknowledge(wrong []ResourceError) []string {
	r, ok := s.client.Acknowledge(s.lastUpdate, wrong)
	if !ok {
		return []string{"= the stream has ended"}
	}
	return formatRequests([]Request{r})
}

func parseResource(w string) (r Resource) {
	w, r.Version, _ = strings.Cut(w, "@")
	if name, faulty := strings.CutSuffix(w, "!"); faulty {
		return Resource{Name: name, DecodeError: "what is it?"}
	}
	name, body, ok := strings.Cut(w, "=")
	r.Name, r.Body, r.Heartbeat = name, []byte(body), !ok
	return r
}

func formatResource(r Resource) string {
	if r.DecodeError != "" {
		return r.Name + "!"
	}
	text := r.Name + "=" + string(r.Body)
	if r.Version != "" {
		text += "@" + r.Version
	}
	return text
}

func formatRequests(all []Request) (text []string) {
	for _, r := range all {
		words := []string{">", r.Type}
		if r.First {
			words = append(words, "node")
		}
		if r.Version != "" {
			words = append(words, "version", r.Version)
		}
		if r.Nonce != "" {
			words = append(words, "nonce", r.Nonce)
		}
		words = append(words, r.Names...)
		for _, n := range r.Subscribe {
			words = append(words, "+"+n)
		}
		for _, n := range r.Unsubscribe {
			words = append(words, "-"+n)
		}
		for _, n := range slices.Sorted(maps.Keys(r.InitialVersions)) {
			words = append(words, "held", n+"@"+r.InitialVersions[n])
		}
		if r.ErrorDetail != "" {
			words = append(words, "refused:", r.ErrorDetail)
		}
		text = append(text, strings.Join(words, " "))
	}
	return text
}
