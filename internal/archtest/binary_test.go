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

// TestBinaryPackages verifies that the binary contains the packages of binaryPackages and no others.
func TestBinaryPackages(t *testing.T) {
	wrong, err := CheckBinary(os.DirFS(filepath.Join("..", "..")))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range wrong {
		t.Error(one)
	}
}

func TestImportsOf(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"go.mod":                "module example.com/house\n",
		"cmd/weft/main.go":      `package main; import _ "example.com/house/pkg/proxy"; import _ "net/http"`,
		"cmd/weft/main_test.go": `package main; import _ "example.com/house/internal/testpki"`,
		"cmd/weft/xds.go":       "//go:build !noxds\n\npackage main\n" + `import _ "example.com/house/pkg/xds"`,
		"cmd/weft/xds_none.go":  "//go:build noxds\n\npackage main\n" + `import _ "example.com/house/pkg/none"`,
		"pkg/proxy/proxy.go":    `package proxy; import _ "example.com/house/pkg/router"`,
		"pkg/router/router.go":  `package router`,
		"pkg/xds/xds.go":        `package xds; import _ "example.com/house/pkg/router"`,
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

// TestCheckBinaryReportsBothSides verifies that an import that is not listed is reported, and an
// entry that nothing imports.
func TestCheckBinaryReportsBothSides(t *testing.T) {
	wrong, err := CheckBinary(fstest.MapFS{
		"go.mod":                  {Data: []byte("module example.com/house\n")},
		"cmd/weft/main.go":        {Data: []byte(`package main; import _ "example.com/house/pkg/buffer"; import _ "example.com/house/internal/testpki"`)},
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
		if !slices.Contains(wrong, want) {
			t.Errorf("%q is not reported, but %q", want, wrong)
		}
	}
	// In both builds, all entries but pkg/buffer, and testpki.
	if want := 2*len(binaryPackages()) + len(binaryPackagesXDS()); len(wrong) != want {
		t.Errorf("%d reports, want %d: %q", len(wrong), want, wrong)
	}
}

// TestBinarySize builds the stripped binary with and without xDS, and compares the sizes with their
// budgets.
func TestBinarySize(t *testing.T) {
	if runtime.GOARCH != "amd64" || invariants.Enabled {
		t.Skip("the budgets are those of a build for amd64 without checks")
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
			t.Errorf("the binary with tag %q has %d bytes, more than %d: find what it links (go tool nm -size -sort size), or raise the budget in internal/archtest/binary.go with the reason",
				tag, built.Size(), budget)
		}
	}
}
