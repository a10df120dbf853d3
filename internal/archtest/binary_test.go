package archtest

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/test/subject"
)

// TestBinaryPackages verifies that the binary contains the packages of binaryPackages and no
// others.
func TestBinaryPackages(t *testing.T) {
	problems, err := CheckBinary(os.DirFS(filepath.Join("..", "..")))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

func TestImportsOf(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"go.mod":                "module example.com/proxy\n",
		"cmd/weft/main.go":      `package main; import _ "example.com/proxy/pkg/proxy"; import _ "net/http"`,
		"cmd/weft/main_test.go": `package main; import _ "example.com/proxy/internal/testpki"`,
		"cmd/weft/xds.go":       "//go:build !noxds\n\npackage main\n" + `import _ "example.com/proxy/pkg/xds"`,
		"cmd/weft/xds_none.go":  "//go:build noxds\n\npackage main\n" + `import _ "example.com/proxy/pkg/none"`,
		"pkg/proxy/proxy.go":    `package proxy; import _ "example.com/proxy/pkg/router"`,
		"pkg/router/router.go":  `package router`,
		"pkg/xds/xds.go":        `package xds; import _ "example.com/proxy/pkg/router"`,
		"pkg/none/none.go":      `package none`,
		"pkg/other/other.go":    `package other`,
		"internal/testpki/p.go": `package testpki`,
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tree, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string]map[string]string{
		"":      {"cmd/weft": "cmd/weft", "pkg/proxy": "cmd/weft", "pkg/xds": "cmd/weft", "pkg/router": "pkg/proxy"},
		"noxds": {"cmd/weft": "cmd/weft", "pkg/proxy": "cmd/weft", "pkg/none": "cmd/weft", "pkg/router": "pkg/proxy"},
	} {
		if diff := cmp.Diff(want, tree.importsOf("cmd/weft", tag)); diff != "" {
			t.Errorf("tag %q (-want +got):\n%s", tag, diff)
		}
	}
}

// TestCheckBinaryReports verifies that CheckBinary reports an import that is not listed, and a
// listed package that the binary does not contain.
func TestCheckBinaryReports(t *testing.T) {
	problems, err := CheckBinary(fstest.MapFS{
		"go.mod":                  {Data: []byte("module example.com/proxy\n")},
		"cmd/weft/main.go":        {Data: []byte(`package main; import _ "example.com/proxy/pkg/buffer"; import _ "example.com/proxy/internal/testpki"`)},
		"pkg/buffer/buffer.go":    {Data: []byte(`package buffer`)},
		"internal/testpki/pki.go": {Data: []byte(`package testpki`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`tag "noxds": cmd/weft imports internal/testpki: keep it out of the binary, or add it to internal/archtest/binary.go`,
		`tag "": the binary has no package pkg/xds: remove it from internal/archtest/binary.go`,
	} {
		if !slices.Contains(problems, want) {
			t.Errorf("%q is not among the reports: %q", want, problems)
		}
	}
	// Each of the two builds lacks every listed package except pkg/buffer, and imports testpki.
	if want := 2*len(binaryPackages()) + len(binaryPackagesXDS()); len(problems) != want {
		t.Errorf("%d reports, want %d: %q", len(problems), want, problems)
	}
}

// TestBinarySize builds the stripped binary with and without xDS, and compares the sizes with their
// budgets.
func TestBinarySize(t *testing.T) {
	if runtime.GOARCH != "amd64" || invariants.Enabled {
		t.Skip("the budgets are for amd64 builds without invariant checks")
	}
	for tag, budget := range map[string]int64{"": sizeBudget, "noxds": sizeBudgetNoXDS} {
		program := filepath.Join(t.TempDir(), "weft")
		if err := subject.Weft(filepath.Join("..", ".."), program, "-trimpath", "-tags", tag, "-ldflags", "-s -w"); err != nil {
			t.Fatal(err)
		}
		built, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("tag %q: %d bytes of %d", tag, built.Size(), budget)
		if built.Size() > budget {
			t.Errorf("the binary with tag %q has %d bytes, more than %d: find what the binary links (go tool nm -size -sort size), or raise the budget in internal/archtest/binary.go with the reason",
				tag, built.Size(), budget)
		}
	}
}
