package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// module is a small module whose tests have every kind of result.
const module = `
-- go.mod --
module example.com/small

go 1.26
-- good/good_test.go --
package good

import "testing"

func TestPasses(t *testing.T) {}
func TestTable(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b/c", func(t *testing.T) { t.Log("not shown") })
}
func TestSkips(t *testing.T) { t.Skip("no such machine") }
func FuzzSeeds(f *testing.F) {
	f.Add("x")
	f.Fuzz(func(t *testing.T, s string) {})
}
-- bad/bad_test.go --
package bad

import "testing"

func TestFails(t *testing.T) { t.Error("one is not two") }
func TestBelow(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b", func(t *testing.T) { t.Error("b is wrong") })
}
func TestItself(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Error("wrong all the same")
}
-- broken/broken_test.go --
package broken

import "testing"

func TestX(t *testing.T) { undefinedName() }
-- panics/panics_test.go --
package panics

import "testing"

func TestPasses(t *testing.T) {}
func TestPanics(t *testing.T) { panic("on purpose") }
func TestNever(t *testing.T)  {}
-- exits/exits_test.go --
package exits

import (
	"os"
	"testing"
)

func TestExits(t *testing.T) { os.Exit(3) }
-- unsteady/unsteady_test.go --
package unsteady

import (
	"errors"
	"os"
	"testing"
)

func TestSteady(t *testing.T) {}
func TestUnsteady(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("b [c]/d", func(t *testing.T) {
		if err := os.Mkdir(os.Getenv("MARK"), 0o700); !errors.Is(err, os.ErrExist) {
			t.Error("no time")
		}
	})
}
-- races/races_test.go --
package races

import "testing"

func TestRaces(t *testing.T) {
	n := 0
	done := make(chan struct{})
	go func() { n++; close(done) }()
	n++
	<-done
}
-- shorter/shorter_test.go --
package shorter

import "testing"

func TestAlways(t *testing.T) {}
func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
}
func TestTable(t *testing.T) {
	t.Run("a", func(t *testing.T) {})
	t.Run("long", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it takes long")
		}
		t.Error("too long")
	})
}
func TestNever(t *testing.T) { t.Skip("no such machine") }
-- tagged/tagged_test.go --
package tagged

import "testing"

func TestFine(t *testing.T) {}
func TestSkips(t *testing.T) {
	if on {
		t.Skip("the tag is on")
	}
}
-- tagged/on_test.go --
//go:build on

package tagged

import "testing"

const on = true

func TestOnlyTagged(t *testing.T) { t.Skip("no such machine") }
-- tagged/off_test.go --
//go:build !on

package tagged

const on = false
-- none/none.go --
package none
-- together/together_test.go --
package together

import (
	"os"
	"testing"
	"time"
)

// Each of the tests waits until the other one runs.
func TestLeft(t *testing.T)  { meet(t, "left", "right") }
func TestRight(t *testing.T) { meet(t, "right", "left") }

func meet(t *testing.T, own, other string) {
	if err := os.WriteFile(os.Getenv("MARK")+own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(os.Getenv("MARK") + other); err == nil {
			return
		}
	}
	t.Fatal("the other test does not run")
}
`

func TestRunOutcomes(t *testing.T) {
	tests := map[string]struct {
		args  []string
		want  []string // in this order
		never []string
		last  string
		err   string
	}{
		"all pass": {
			args:  []string{"-phase", "unit: ./good ./none"},
			want:  []string{"== unit: go test ./good ./none", "ok    example.com/small/good", "unit         4 passed, 0 failed, 1 skipped (1 packages", "SKIPPED unit: example.com/small/good TestSkips: good_test.go:10: no such machine"},
			never: []string{"not shown", "small/none "},
			last:  "4 passed, 0 failed, 1 skipped",
		},
		"two phases run concurrently": {
			args: []string{"-phase", "left: -run=TestLeft ./together", "-with", "right: -run=TestRight ./together", "-phase", "unit: ./good"},
			want: []string{"== unit: go test ./good", "== summary", "left         1 passed", "right        1 passed", "unit         4 passed"},
			last: "6 passed, 0 failed, 1 skipped",
		},
		"tests fail": {
			args: []string{"-phase", "unit: ./good ./bad"},
			want: []string{"small/bad TestFails", "one is not two", "small/bad TestBelow/b", "b is wrong", "small/bad TestItself", "wrong all the same", "FAIL  example.com/small/bad",
				"== failures\n----  unit: example.com/small/bad TestFails\n      bad_test.go:5: one is not two\n",
				"----  unit: example.com/small/bad TestBelow/b\n      bad_test.go:8: b is wrong\n",
				"----  unit: example.com/small/bad TestItself\n      bad_test.go:12: wrong all the same\nFAILED: unit"},
			never: []string{"small/bad TestBelow\n"},
			last:  "6 passed, 3 failed, 1 skipped",
			err:   "failed: unit",
		},
		"a build fails": {
			args: []string{"-phase", "unit: ./broken"},
			want: []string{"undefinedName", "FAIL  example.com/small/broken", "----  unit: example.com/small/broken\n      broken/broken_test.go:5:28: undefined: undefinedName\n"},
			last: "0 passed, 1 failed, 0 skipped",
			err:  "failed: unit",
		},
		"a panic ends a package": {
			args: []string{"-phase", "unit: ./panics"},
			want: []string{"small/panics TestPanics", "panic: on purpose", "FAIL  example.com/small/panics", "== failures\n----  unit: example.com/small/panics TestPanics\n      panic: on purpose"},
			last: "1 passed, 1 failed, 0 skipped",
			err:  "failed: unit",
		},
		"a test exits": {
			args: []string{"-phase", "unit: ./exits"},
			want: []string{"FAIL  example.com/small/exits"},
			last: "0 passed, 1 failed, 0 skipped",
			err:  "failed: unit",
		},
		"phases add up": {
			args: []string{"-phase", "first: ./good", "-phase", "second: -run=Passes ./good"},
			want: []string{"first        4 passed", "second       1 passed"},
			last: "5 passed, 0 failed, 1 skipped",
		},
		"skipped tests run in a phase of their own": {
			args: []string{"-phase", "short: -short -run=Long|Always ./shorter ./good", "-then", "long: -count=1"},
			want: []string{"== short: ", "== long: go test -count=1 -run=^(TestLong)$ example.com/small/shorter\n", "short        1 passed, 0 failed, 0 skipped", "long         1 passed, 0 failed, 0 skipped"},
			last: "2 passed, 0 failed, 0 skipped",
		},
		"skipped tests fail, or are skipped again": {
			args:  []string{"-phase", "short: -short ./shorter", "-then", "long:"},
			want:  []string{"== long: go test -run=^(TestLong|TestNever|TestTable)$ example.com/small/shorter\n", "SKIPPED long: example.com/small/shorter TestNever: ", "----  long: example.com/small/shorter TestTable/long\n", "FAILED: long"},
			never: []string{"SKIPPED short"},
			last:  "4 passed, 1 failed, 1 skipped",
			err:   "failed: long",
		},
		"a skipped test does not exist in the second phase": {
			args: []string{"-phase", "on: -tags=on ./tagged", "-then", "off:"},
			want: []string{"on           1 passed, 0 failed, 1 skipped", "off          1 passed, 0 failed, 0 skipped", "SKIPPED on: example.com/small/tagged TestOnlyTagged: "},
			last: "2 passed, 0 failed, 1 skipped",
		},
		"no test is skipped": {
			args:  []string{"-phase", "short: -short -run=Always ./shorter", "-then", "long:"},
			never: []string{"== long"},
			last:  "1 passed, 0 failed, 0 skipped",
		},
		"a second phase that cannot run": {
			args: []string{"-phase", "short: -short ./shorter", "-then", "long: -count=none"},
			want: []string{"SKIPPED short", "FAILED: long"},
			last: "2 passed, 1 failed, 3 skipped",
			err:  "failed: long",
		},
		"a second phase without a first": {
			args: []string{"-then", "long:"},
			err:  `invalid value "long:" for flag -then: -then requires a preceding -phase`,
		},
		"no such package": {
			args: []string{"-phase", "unit: ./good ./nowhere"},
			want: []string{"nowhere", "FAILED: unit"},
			last: "4 passed, 1 failed, 1 skipped",
			err:  "failed: unit",
		},
		"a bad flag": {
			args: []string{"-phase", "unit: -count=none ./good"},
			want: []string{"unit         go test: exit status", "FAILED: unit"},
			last: "0 passed, 0 failed, 0 skipped",
			err:  "failed: unit",
		},
		"nothing runs": {
			args: []string{"-phase", "unit: -run=NoSuchTest ./good"},
			last: "0 passed, 0 failed, 0 skipped",
			err:  "failed: no test ran",
		},
		"a test passes when it runs again": {
			args: []string{"-again", "1", "-phase", "unit: ./good ./unsteady"},
			want: []string{"FAIL  example.com/small/unsteady", "== unit, again: go test -count=1 -run=^TestUnsteady$/^b_\\[c\\]$/^d$ example.com/small/unsteady", "ok    example.com/small/unsteady",
				"FLAKY unit: example.com/small/unsteady TestUnsteady/b_[c]/d: passed when rerun alone; first run:\n      unsteady_test.go:14: no time\n"},
			last: "7 passed, 0 failed, 1 skipped",
		},
		"a test fails again": {
			args:  []string{"-again", "3", "-phase", "unit: ./bad"},
			want:  []string{"== unit, again: ", "FAIL", "== failures\n----  unit: example.com/small/bad TestFails\n      bad_test.go:5: one is not two\n", "FAILED: unit"},
			never: []string{"FLAKY"},
			last:  "2 passed, 3 failed, 0 skipped",
			err:   "failed: unit",
		},
		"too many failures to rerun": {
			args:  []string{"-again", "2", "-phase", "unit: ./bad"},
			never: []string{"again: "},
			last:  "2 passed, 3 failed, 0 skipped",
			err:   "failed: unit",
		},
		"a panic is not rerun": {
			args:  []string{"-again", "2", "-phase", "unit: ./panics"},
			never: []string{"again: "},
			last:  "1 passed, 1 failed, 0 skipped",
			err:   "failed: unit",
		},
		"an earlier step failed": {
			args: []string{"-steps", "steps", "-phase", "unit: ./good"},
			want: []string{"ok gofmt", "FAILED lint", "SKIPPED govulncheck: no database", "== failures\n----  lint\n      x.go:1: no comment\nFAILED: lint"},
			last: "4 passed, 0 failed, 1 skipped",
			err:  "failed: lint",
		},
	}
	chdirModule(t)
	if err := os.WriteFile("steps", []byte("ok gofmt\nSKIPPED govulncheck: no database\nFAILED lint\n x.go:1: no comment\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MARK", filepath.Join(t.TempDir(), "mark"))
			var out bytes.Buffer
			err := run(t.Context(), test.args, &out)
			if text := message(err); text != test.err {
				t.Errorf("run = %q, want %q", text, test.err)
			}
			rest := out.String()
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("output lacks %q, or has it too early:\n%s", want, out.String())
				}
				rest = after
			}
			for _, never := range test.never {
				if strings.Contains(out.String(), never) {
					t.Errorf("output has %q:\n%s", never, out.String())
				}
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; last != test.last {
				t.Errorf("last line %q, want %q\n%s", last, test.last, out.String())
			}
		})
	}
}

// TestRacesAreNotRerun verifies that a test with a data race does not run again. It needs the
// race detector, and so a C compiler.
func TestRacesAreNotRerun(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler for the race detector")
	}
	chdirModule(t)
	var out bytes.Buffer
	err := run(t.Context(), []string{"-again", "1", "-phase", "race: -race ./races"}, &out)
	if text := message(err); text != "failed: race" || strings.Contains(out.String(), "again: ") {
		t.Errorf("run = %q:\n%s", text, out.String())
	}
}

// TestTruncatedEvents verifies the counts and the output after a go command was killed.
func TestTruncatedEvents(t *testing.T) {
	var out bytes.Buffer
	c := newEventParser(&out)
	for line := range strings.Lines(`go: a remark
{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"run","Package":"a","Test":"TestX/y"}
{"Action":"output","Package":"a","Test":"TestX/y","Output":"    x_test.go:5: so far\n"}
`) {
		c.handleLine([]byte(strings.TrimSuffix(line, "\n")))
	}
	c.finish()
	if want := (counts{failed: 1}); c.counts != want {
		t.Errorf("counts = %v, want %v", c.counts, want)
	}
	want := `go: a remark
----  a TestX/y (cut off)
          x_test.go:5: so far
FAIL  a  s  0 passed, 1 failed, 0 skipped
`
	got := regexp.MustCompile(` +0\.0 s`).ReplaceAllString(out.String(), "  s")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// chdirModule makes the small module the test's working directory.
func chdirModule(t *testing.T) {
	t.Helper()
	t.Chdir(unpack(t, module))
	t.Setenv("GOFLAGS", "")
}

func unpack(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range txtar.Parse([]byte(text)).Files {
		name := filepath.Join(root, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestEventsAreWritten verifies that -events writes all events, including those of tests that run
// again.
func TestEventsAreWritten(t *testing.T) {
	chdirModule(t)
	t.Setenv("MARK", filepath.Join(t.TempDir(), "mark"))
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-events", "events", "-again", "1", "-phase", "unit: ./unsteady"}, &out); err != nil {
		t.Fatalf("run = %v:\n%s", err, out.String())
	}
	events, err := os.ReadFile("events")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Action":"fail","Package":"example.com/small/unsteady","Test":"TestUnsteady"`, `"Action":"pass","Package":"example.com/small/unsteady","Test":"TestUnsteady"`} {
		if !strings.Contains(string(events), want) {
			t.Errorf("no event %s in\n%s", want, events)
		}
	}
}

// limitedFile is a file on a disk with freeBytes bytes of free space.
type limitedFile struct{ freeBytes int }

func (f *limitedFile) Write(p []byte) (int, error) {
	if f.freeBytes -= len(p); f.freeBytes < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// TestEventsWriteError verifies that all tests run and the write error is kept.
func TestEventsWriteError(t *testing.T) {
	chdirModule(t)
	for _, room := range []int{0, 1000} {
		r := runner{out: io.Discard, events: &limitedFile{room}}
		o := r.runOnce(t.Context(), phase{name: "unit", args: []string{"./good"}})
		if want := (counts{passed: 4, skipped: 1}); o.counts != want || o.err != nil || !errors.Is(r.eventsErr, syscall.ENOSPC) {
			t.Errorf("room for %d bytes: %v, %v, want %v; events: %v", room, o.counts, o.err, want, r.eventsErr)
		}
	}
}
