package http2

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files in testdata")

// states returns states of a session, among them every stream state of RFC 9113 5.1, and the steps
// of a client and of a server that lead to each state. The reserved stream states do not occur,
// because push is rejected.
func states() []struct{ name, client, server string } {
	return []struct{ name, client, server string }{
		{"idle", "", ""},
		{"open", "request POST", "> HEADERS 1 POST"},
		{"open, after the response head", "request POST; > HEADERS 1 200", "> HEADERS 1 POST; response 1 200"},
		{"half-closed (local)", "request GET end", "> HEADERS 1 POST; response 1 200 end"},
		{"half-closed (local), after the response head", "request GET end; > HEADERS 1 200", ""},
		{"half-closed (remote)", "request POST; > HEADERS 1 end 200", "> HEADERS 1 end GET"},
		{"closed by both ends", "request GET end; > HEADERS 1 end 200", "> HEADERS 1 end GET; response 1 200 end"},
		{"closed by our reset", "request POST; reset 1 CANCEL", "> HEADERS 1 POST; reset 1 CANCEL"},
		{"closed by the peer's reset", "request POST; > RST_STREAM 1 CANCEL", "> HEADERS 1 POST; > RST_STREAM 1 CANCEL"},
		{"a header block is incomplete", "request POST; > HEADERS 1 more 200", "> HEADERS 1 more POST"},
		{"after our GOAWAY", "request POST; goaway NO_ERROR", "goaway NO_ERROR"},
		{"no SETTINGS yet", "", ""},
	}
}

// frames returns frames of every type, with the variants that have another meaning.
func frames(role Role) []string {
	head := "200"
	if role == Server {
		head = "POST"
	}
	return []string{
		"DATA 1 5", "DATA 1 end 5", "DATA 1 0", "DATA 1 end pad=2 3", "DATA 0 5", "DATA 2 5",
		"HEADERS 1 " + head, "HEADERS 1 end " + head, "HEADERS 1 end TRAILER", "HEADERS 1 TRAILER", "HEADERS 1 more " + head,
		"HEADERS 1 priority=1 " + head, "HEADERS 0 " + head, "HEADERS 2 " + head, "HEADERS 3 " + head,
		"PRIORITY 1 3", "PRIORITY 1 1", "RAW 2 0 1 00000000", "PRIORITY 0 1",
		"RST_STREAM 1 CANCEL", "RST_STREAM 0 CANCEL", "RAW 3 0 1 000000",
		"SETTINGS MAX_FRAME_SIZE=20000", "SETTINGS ack", "RAW 4 1 0 00", "RAW 4 0 1", "RAW 4 0 0 00",
		"PUSH_PROMISE 1 2", "PUSH_PROMISE 0 2",
		"PING 7", "PING ack 7", "RAW 6 0 0 00", "RAW 6 0 1 0000000000000000",
		"GOAWAY 0 NO_ERROR", "RAW 7 0 0 00", "RAW 7 0 1 0000000000000000",
		"WINDOW_UPDATE 1 10", "WINDOW_UPDATE 1 0", "WINDOW_UPDATE 1 0x7fffffff", "WINDOW_UPDATE 0 10",
		"WINDOW_UPDATE 0 0", "WINDOW_UPDATE 0 0x7fffffff", "RAW 8 0 1 00",
		"CONTINUATION 1 | x: y", "CONTINUATION 0 | x: y",
		"PRIORITY_UPDATE 0", "RAW 42 255 1 00",
	}
}

// TestStates compares the result of every frame in every state, for both roles, with
// testdata/states_*.txt. -update writes these files; review their changes against the RFC.
func TestStates(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		name := [...]string{"client", "server"}[role]
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			fmt.Fprintf(&got, "# The results of each frame for a %s in each state: the event, the error, the\n# frames sent in return, and the state of stream 1 if it changes.\n", name)
			for _, st := range states() {
				steps := st.client
				if role == Server {
					steps = st.server
				}
				if steps == "" && st.name != "idle" && st.name != "no SETTINGS yet" {
					continue
				}
				fmt.Fprintf(&got, "\n%s\n", st.name)
				for _, frame := range frames(role) {
					fmt.Fprintf(&got, "  %-32s %s\n", frame, outcome(t, role, st.name, steps, frame))
				}
			}
			checkGolden(t, "testdata/states_"+name+".txt", got.String())
		})
	}
}

// outcome brings a session to a state and returns the result of a frame there.
func outcome(t *testing.T, role Role, state, setup, frame string) string {
	t.Helper()
	r := newScriptRunner(Config{Role: role})
	steps := []string{"start", "> SETTINGS"}
	if state == "no SETTINGS yet" {
		steps = steps[:1]
	}
	if setup != "" {
		steps = append(steps, strings.Split(setup, "; ")...)
	}
	for _, step := range steps {
		for _, line := range r.runLine(step) {
			if strings.HasPrefix(line, "!") {
				t.Fatalf("%s: %s: %s, want no error", state, step, line)
			}
		}
	}
	before := r.state(1)
	lines := r.runLine("> " + frame)
	if after := r.state(1); after != before && after != Idle {
		lines = append(lines, "→ "+after.String())
	}
	if len(lines) == 0 {
		return "ignored"
	}
	return strings.Join(lines, "; ")
}

// checkGolden compares got with a file, or writes the file if -update is set.
func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(b), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s:%d: got %q, want %q", path, i+1, line, append(want, "nothing")[min(i, len(want))])
		}
	}
	if n := strings.Count(got, "\n") + 1; n != len(want) {
		t.Fatalf("%s has %d lines, want %d", path, len(want), n)
	}
}

// TestStatesAreComplete verifies that frames has every frame type of RFC 9113, PRIORITY_UPDATE and
// an unknown type, and that states reaches every stream state.
func TestStatesAreComplete(t *testing.T) {
	for _, role := range []Role{Client, Server} {
		types := map[FrameType]bool{}
		for _, text := range frames(role) {
			f, err := makeFrame(text)
			if err != nil {
				t.Fatal(err)
			}
			types[f.Type] = true
		}
		for ty := range FrameContinuation + 1 {
			if !types[ty] {
				t.Errorf("frames has no %v for role %d", ty, role)
			}
		}
		if !types[FramePriorityUpdate] || !types[42] {
			t.Errorf("frames has no PRIORITY_UPDATE or no unknown type for role %d", role)
		}
		reached := map[State]bool{Idle: true}
		for _, st := range states() {
			r := newScriptRunner(Config{Role: role})
			r.start(" ready")
			steps := st.client
			if role == Server {
				steps = st.server
			}
			for step := range strings.SplitSeq(steps, "; ") {
				if step != "" {
					r.runLine(step)
				}
			}
			reached[r.state(1)] = true
		}
		for st := range Closed + 1 {
			if !reached[st] {
				t.Errorf("no steps lead to %v for role %d", st, role)
			}
		}
	}
}
