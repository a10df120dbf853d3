package docs

import (
	"path/filepath"
	"testing"
)

// TestDubboPage does what docs/dubbo.md says, with files of its own for what the two
// sidecars keep.
func TestDubboPage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("REGISTRY_ADDRESS", "file:"+filepath.Join(dir, "registry"))
	t.Setenv("STATE_DIR", dir)
	followPage(t, "docs/dubbo.md")
}
