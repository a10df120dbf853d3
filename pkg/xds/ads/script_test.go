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

var update = flag.Bool("update", false, "write the results to the scripts")

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
				t.Errorf("the results differ from those in %s:\n%s", path, got)
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
		for _, result := range s.runLine(line) {
			out.WriteString("  " + result + "\n")
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
//	subscribe EDS a b   set the subscribed names
//	restore EDS a=1     restore a
//	response CDS v1 n1 a=1 b=2@7 c@8 -d e!  b has version 7, c is a heartbeat, d is removed,
//	                                        e has a DecodeError
//	accept              acknowledge the last update
//	reject a: reason; b: reason             acknowledge the last update and reject a and b
//	list CDS            list the accepted resources
func (s *script) runLine(line string) []string {
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch verb {
	case "sotw", "delta":
		mode := StateOfTheWorld
		if verb == "delta" {
			mode = Delta
		}
		var types []Type
		for _, w := range words {
			name, required := strings.CutSuffix(w, "!")
			types = append(types, Type{URL: name, AllResourcesRequiredInSotW: required})
		}
		s.client = New(mode, types...)
		return nil
	case "start":
		return formatRequests(s.client.StreamOpened())
	case "end":
		s.client.StreamClosed()
		return nil
	case "all":
		return formatRequests(s.client.SubscribeAll(words[0]))
	case "subscribe":
		return formatRequests(s.client.SetSubscription(words[0], words[1:]))
	case "restore":
		s.client.Restore(words[0], parseResource(words[1]))
		return nil
	case "response":
		return s.receive(words)
	case "accept":
		return s.acknowledge(nil)
	case "reject":
		var rejected []ResourceError
		for w := range strings.SplitSeq(rest, "; ") {
			name, reason, _ := strings.Cut(w, ": ")
			rejected = append(rejected, ResourceError{name, reason})
		}
		return s.acknowledge(rejected)
	case "list":
		accepted := s.client.Resources(words[0])
		var texts []string
		for _, n := range slices.Sorted(maps.Keys(accepted)) {
			texts = append(texts, formatResource(accepted[n]))
		}
		version, ok := s.client.Version(words[0])
		return []string{fmt.Sprintf("= %s; version %q %v", strings.Join(texts, " "), version, ok)}
	}
	panic("unknown line: " + line)
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
		return []string{"= not requested"}
	}
	s.lastUpdate = u
	words = []string{"=", u.Type, u.Version}
	for _, res := range u.Changed {
		words = append(words, formatResource(res))
	}
	for _, res := range u.Removed {
		words = append(words, "-"+res)
	}
	return []string{strings.Join(words, " ")}
}

func (s *script) acknowledge(rejected []ResourceError) []string {
	r, ok := s.client.Acknowledge(s.lastUpdate, rejected)
	if !ok {
		return []string{"= no request"}
	}
	return formatRequests([]Request{r})
}

func parseResource(w string) (r Resource) {
	w, r.Version, _ = strings.Cut(w, "@")
	if name, invalid := strings.CutSuffix(w, "!"); invalid {
		return Resource{Name: name, DecodeError: "unknown type"}
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

func formatRequests(requests []Request) (texts []string) {
	for _, r := range requests {
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
			words = append(words, "has", n+"@"+r.InitialVersions[n])
		}
		if r.ErrorDetail != "" {
			words = append(words, "rejected:", r.ErrorDetail)
		}
		texts = append(texts, strings.Join(words, " "))
	}
	return texts
}
