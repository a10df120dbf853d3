package docs

import (
	"path/filepath"
	"testing"
)

// TestDubboPage runs the commands of docs/dubbo.md, with separate files for the state of the two
// sidecars.
func TestDubboPage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("REGISTRY_ADDRESS", "file:"+filepath.Join(dir, "registry"))
	t.Setenv("STATE_DIR", dir)
	runPage(t, "docs/dubbo.md")
}
